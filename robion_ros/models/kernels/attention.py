# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
Attention of few tokens to many: all query heads share one head of keys and values.

The heads are laid along the token axis, which makes HEADS * HORIZON rows of one batch entry.
Keys are split among blocks; a second kernel joins what they found. The keys of the tokens
before lie where the stage before wrote them, those of the tokens themselves in qkv. Knows no
model.
"""

import triton
import triton.language as tl

from robion_ros.models.kernels.overlap import wait_for_kernel_before

HIDDEN_SCORE: tl.constexpr = tl.constexpr(-1e30)
"""Finite, so that a block that sees hidden keys alone gets no NaN but a weight of zero."""


@triton.jit
def attend_kernel(qkv, past, valid, found, weight, past_batch, past_values, valid_batch, keys,
                  HEADS: tl.constexpr, SIZE: tl.constexpr, HORIZON: tl.constexpr,
                  TILES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                  SCALE: tl.constexpr, OVERLAP: tl.constexpr):
    """
    Attend to TILES tiles of keys: those before, then the tokens' own.

    Writes found bf16 [splits, B, HEADS * HORIZON, SIZE] and weight fp32 [splits, B, HEADS *
    HORIZON], the binary logarithm of the sum of the exponentials.
    """
    split, batch = tl.program_id(1), tl.program_id(2)
    ROWS: tl.constexpr = HEADS * HORIZON
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    size = tl.arange(0, SIZE)
    past += batch * past_batch
    qkv += batch * (HEADS + 2) * HORIZON * SIZE
    own_tile = tl.cdiv(keys, BLOCK_N)
    wait_for_kernel_before(OVERLAP)

    query = tl.load(qkv + row[:, None] * SIZE + size[None, :], (row < ROWS)[:, None], 0.0)
    most = tl.full((BLOCK_M,), HIDDEN_SCORE, tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, SIZE), tl.float32)
    for index in range(TILES):
        tile = split * TILES + index
        own = tile >= own_tile
        key = tl.where(own, tile - own_tile, tile) * BLOCK_N + tl.arange(0, BLOCK_N)
        exists = key < tl.where(own, HORIZON, keys)
        seen = tl.load(valid + batch * valid_batch + key, exists & (tile < own_tile), 0)
        seen = exists & (own | (seen != 0))
        source = tl.where(own, qkv + HEADS * HORIZON * SIZE, past)
        k = tl.load(source + key[None, :] * SIZE + size[:, None], exists[None, :], 0.0)
        source = tl.where(own, qkv + (HEADS + 1) * HORIZON * SIZE, past + past_values)
        v = tl.load(source + key[:, None] * SIZE + size[None, :], exists[:, None], 0.0)
        scores = tl.where(seen[None, :], tl.dot(query, k) * SCALE, HIDDEN_SCORE)
        higher = tl.maximum(most, tl.max(scores, 1))
        shrink = tl.exp2(most - higher)
        shares = tl.exp2(scores - higher[:, None])
        norm = norm * shrink + tl.sum(shares, 1)
        total = tl.dot(shares.to(tl.bfloat16), v, total * shrink[:, None])
        most = higher

    row_of_all = (split * tl.num_programs(2) + batch) * ROWS + row
    tl.store(weight + row_of_all, most + tl.log2(norm), row < ROWS)
    tl.store(found + row_of_all[:, None] * SIZE + size[None, :],
             (total / norm[:, None]).to(tl.bfloat16), (row < ROWS)[:, None])


@triton.jit
def join_kernel(found, weight, output, HEADS: tl.constexpr, SIZE: tl.constexpr,
                HORIZON: tl.constexpr, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr,
                OVERLAP: tl.constexpr):
    """Write output bf16 [B * HORIZON, HEADS * SIZE]; BLOCK_S is at least SPLITS."""
    row, rows = tl.program_id(0), tl.num_programs(0)
    split, size = tl.arange(0, BLOCK_S), tl.arange(0, SIZE)
    wait_for_kernel_before(OVERLAP)
    share = tl.load(weight + split * rows + row, split < SPLITS, -float('inf'))
    part = tl.load(found + (split * rows + row)[:, None] * SIZE + size[None, :],
                   (split < SPLITS)[:, None], 0.0)
    share = tl.exp2(share - tl.max(share, 0))
    share /= tl.sum(share, 0)
    total = tl.sum(part.to(tl.float32) * share[:, None], 0)
    batch, head, token = row // (HEADS * HORIZON), row // HORIZON % HEADS, row % HORIZON
    target = ((batch * HORIZON + token) * HEADS + head) * SIZE + size
    tl.store(output + target, total.to(tl.bfloat16))
