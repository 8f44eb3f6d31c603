# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
Attention of many tokens to many, under a mask, which costs a library half of its speed.

The query heads that share keys and values are laid along the token axis, those of a token one
after the other, wherever they stand in memory. Keys and values are tensor descriptors, for the
copy engine, and what lies beyond them reads as zero. Knows no model.
"""

import math

import torch
from torch import Tensor
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from robion_ros.models.kernels.attention import HIDDEN_SCORE, weigh

LOG2_E: tl.constexpr = tl.constexpr(math.log2(math.e))
"""Softmax is computed with powers of two."""


@triton.jit
def attention_kernel(queries, keys, values, mask, output, tokens, count, query_batch, query_head,
                     query_token, mask_batch, mask_token, GROUP: tl.constexpr,
                     SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     BLOCK_D: tl.constexpr, BY_TOKEN: tl.constexpr, SCALE: tl.constexpr):
    """
    Write output bf16 [B, T, G GROUP, SIZE].

    queries are [B, G GROUP, T, SIZE] with any strides but the last, keys and values
    [B, G, K, SIZE], of which there are count, and mask is added to the scores: [B, K], or
    BY_TOKEN [B, T, K]. BLOCK_D is at least SIZE.
    """
    group, batch = tl.program_id(1), tl.program_id(2)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    token, head = row // GROUP, group * GROUP + row % GROUP
    key, size = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    exists = (token < tokens)[:, None] & (size < SIZE)[None, :]
    place = batch * query_batch + head * query_head + token * query_token
    query = tl.load(queries + place[:, None] + size[None, :], exists, 0.0)
    mask += batch * mask_batch
    # Finite, so that keys that nobody may see weigh nothing, also where they come first.
    most = tl.full((BLOCK_M,), HIDDEN_SCORE, tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(0, count, BLOCK_N):
        k = keys.load([batch, group, start, 0]).reshape(BLOCK_N, BLOCK_D)
        scores = tl.dot(query, k.T) * (SCALE * LOG2_E)
        there = start + key < count
        if BY_TOKEN:
            hidden = tl.load(mask + token[:, None] * mask_token + (start + key)[None, :],
                             (token < tokens)[:, None] & there[None, :], -float('inf'))
            scores += hidden.to(tl.float32) * LOG2_E
        else:
            hidden = tl.load(mask + start + key, there, -float('inf'))
            scores += hidden.to(tl.float32)[None, :] * LOG2_E
        most, norm, shares, shrink = weigh(scores, most, norm)
        v = values.load([batch, group, start, 0]).reshape(BLOCK_N, BLOCK_D)
        total = tl.dot(shares.to(tl.bfloat16), v, total * shrink[:, None])
    total /= tl.where(norm > 0, norm, 1.0)[:, None]  # A row that sees nothing gets zeros.
    target = (batch * tokens + token) * (tl.num_programs(1) * GROUP) + head
    tl.store(output + target[:, None] * SIZE + size[None, :], total.to(tl.bfloat16), exists)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """
    Let queries [B, H, T, D] attend to keys and values [B, G, K, D]: bf16 [B, T, H, D].

    mask, [B, 1, T or 1, K], is added to the scores. All are bf16, and the last axis is dense.
    """
    batch, heads, tokens, size = queries.shape
    groups, count = keys.shape[1:3]
    rows = tokens * (heads // groups)
    block_d = max(16, triton.next_power_of_2(size))
    # Found on an H200: large blocks read keys less often, small ones keep all of it busy.
    sms = torch.cuda.get_device_properties(queries.device).multi_processor_count
    small = block_d < 256 or math.ceil(rows / 64) * groups * batch <= sms
    by_token = mask.shape[2] > 1  # Such a mask takes shared memory, too.
    block_m, warps, stages = (64, 4, 2 if by_token else 3) if small else (128, 8, 2)
    tile = [1, 1, 64, block_d]
    output = queries.new_empty(batch, tokens, heads, size)
    attention_kernel[(math.ceil(rows / block_m), groups, batch)](
        queries, TensorDescriptor.from_tensor(keys, tile),
        TensorDescriptor.from_tensor(values, tile), mask, output, tokens, count,
        *queries.stride()[:3], mask.stride(0), mask.stride(2), GROUP=heads // groups, SIZE=size,
        BLOCK_M=block_m, BLOCK_N=tile[2], BLOCK_D=block_d, BY_TOKEN=by_token,
        SCALE=1 / math.sqrt(size), num_warps=warps, num_stages=stages)
    return output
