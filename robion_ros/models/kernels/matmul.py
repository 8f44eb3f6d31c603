# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
Products of few rows with weights that are read once: x [M, K] with weights [N, K].

The blocks spread the columns, or parts of the depth, over the multiprocessors; each takes
BLOCK_M rows of x, most often all. x and weights are tensor descriptors of blocks that end with
[BLOCK_K], so that the copy engine loads them; what lies beyond x's last row reads as zero.
Weights are as torch.nn.Linear holds them. All is bf16 and summed in fp32. Knows no model.
"""

import triton
import triton.language as tl

from robion_ros.models.kernels.overlap import wait_for_kernel_before


@triton.jit
def paired_product(x, weights, pair, place, DEPTH: tl.constexpr, BLOCK_M: tl.constexpr,
                   BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """
    Return two products [BLOCK_M, BLOCK_N / 2] with weights [pairs, N / pairs, K].

    The first is with rows from place on of weights[pair], the second with the same of the next.
    """
    half: tl.constexpr = BLOCK_N // 2
    row = tl.program_id(0) * BLOCK_M
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, DEPTH, BLOCK_K):
        right = weights.load([pair, place, k]).reshape(BLOCK_N, BLOCK_K)
        total = tl.dot(x.load([row, k]), right.T, total)
    return total.reshape(BLOCK_M, 2, half).permute(0, 2, 1).split()


@triton.jit
def qkv_kernel(x, weights, cos, sin, qkv, rows, turn_batch, turn_token,
               WIDTH: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr,
               TOKENS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
               BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr):
    """
    Write heads [B, HEADS + 2, TOKENS, SIZE]: queries, one of keys, one of values.

    Weights are in pairs of half a head, which the rotation mixes: [2 (HEADS + 2), SIZE / 2, K].
    """
    half: tl.constexpr = BLOCK_N // 2
    turns: tl.constexpr = SIZE // 2
    head = tl.program_id(1) // (turns // half)
    place = tl.program_id(1) % (turns // half) * half
    column = place + tl.arange(0, half)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    exists = (row < rows)[:, None]
    batch, token = row // TOKENS, row % TOKENS
    turn = (batch * turn_batch + token * turn_token)[:, None] + column[None, :]
    turned = exists & (head <= HEADS)  # values are not
    c = tl.load(cos + turn, turned, 1.0)
    s = tl.load(sin + turn + turns, turned, 0.0)
    wait_for_kernel_before(OVERLAP)
    low, high = paired_product(x, weights, 2 * head, place, WIDTH, BLOCK_M, BLOCK_N, BLOCK_K)
    target = ((batch * (HEADS + 2) + head) * TOKENS + token)[:, None] * SIZE + column[None, :]
    tl.store(qkv + target, (low * c - high * s).to(tl.bfloat16), exists)
    tl.store(qkv + target + turns, (high * c + low * s).to(tl.bfloat16), exists)


@triton.jit
def gelu(x):
    """Return x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), which is GELU by its tanh."""
    inner = x * (1.5957691216057308 + 0.07135481627159881 * x * x)
    return x / (1 + tl.exp(-inner))


@triton.jit
def gate_up_kernel(x, weights, hidden, rows, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                   OVERLAP: tl.constexpr):
    """Write gelu(gate) * up [M, HIDDEN]; the pair of weights [2, HIDDEN, K] is gate and up."""
    half: tl.constexpr = BLOCK_N // 2
    place = tl.program_id(1) * half
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    wait_for_kernel_before(OVERLAP)
    gate, up = paired_product(x, weights, 0, place, WIDTH, BLOCK_M, BLOCK_N, BLOCK_K)
    result = gelu(gate) * up
    target = row[:, None] * HIDDEN + (place + tl.arange(0, half))[None, :]
    tl.store(hidden + target, result.to(tl.bfloat16), (row < rows)[:, None])


@triton.jit
def project_kernel(x, weights, parts, rows, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
                   PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                   BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr):
    """
    Write fp32 parts [PARTS, M, WIDTH] of a product, which whoever reads them adds up.

    Of blocks of the DEPTH that PARTS do not divide, the first parts take one more.
    """
    REST: tl.constexpr = DEPTH // BLOCK_K % PARTS
    first_row, place = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    part = tl.program_id(2)
    depth = DEPTH // BLOCK_K // PARTS * BLOCK_K
    start = part * depth
    if REST:
        start += tl.minimum(part, REST) * BLOCK_K
        depth += tl.where(part < REST, BLOCK_K, 0)
    wait_for_kernel_before(OVERLAP)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, depth, BLOCK_K):
        right = weights.load([place, start + k])
        total = tl.dot(x.load([first_row, start + k]), right.T, total)
    row, column = first_row + tl.arange(0, BLOCK_M), place + tl.arange(0, BLOCK_N)
    tl.store(parts + (part * rows + row)[:, None] * WIDTH + column[None, :], total,
             (row < rows)[:, None])
