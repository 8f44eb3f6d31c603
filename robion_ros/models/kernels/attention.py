# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
Attention of few tokens to many: all query heads share one head of keys and values.

The heads are laid along the token axis, which makes HEADS * TOKENS rows of one batch entry.
Keys are split among blocks; a second kernel joins what they found. The keys of the tokens
before lie where the stage before wrote them, those of the tokens themselves in qkv; all are
tensor descriptors, for the copy engine. This runs on any GPU, and nothing is loaded ahead;
hopper_attention.py does the same faster where it can. Knows no model.
"""

import triton
import triton.language as tl

from robion_ros.models.kernels.overlap import wait_for_kernel_before

HIDDEN_SCORE: tl.constexpr = tl.constexpr(-1e30)
"""Finite, so that a block that sees hidden keys alone gets no NaN but a weight of zero."""


@triton.jit
def attend_kernel(queries, own, past, valid, found, weight, valid_batch, keys,
                  HEADS: tl.constexpr, SIZE: tl.constexpr, TOKENS: tl.constexpr,
                  FIRST: tl.constexpr, TILES: tl.constexpr, BLOCK_M: tl.constexpr,
                  BLOCK_N: tl.constexpr, SCALE: tl.constexpr, OVERLAP: tl.constexpr):
    """
    Attend to TILES tiles of all keys: those of the tokens before, then the own ones.

    queries [B (HEADS + 2) TOKENS, SIZE] and own [B, HEADS + 2, TOKENS, SIZE] are the same qkv,
    past is [B, 2, keys, SIZE]. With FIRST, the first token sees no own key but its own. Writes
    found bf16 [splits, B, HEADS * TOKENS, SIZE] and weight fp32 [splits, B, HEADS * TOKENS], the
    binary logarithm of the sum of the exponentials.
    """
    split, batch = tl.program_id(1), tl.program_id(2)
    ROWS: tl.constexpr = HEADS * TOKENS
    first_row = tl.program_id(0) * BLOCK_M
    row, column = first_row + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    past_tiles = tl.cdiv(keys, BLOCK_N)
    valid += batch * valid_batch
    most = tl.full((BLOCK_M,), HIDDEN_SCORE, tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    total = tl.zeros((BLOCK_M, SIZE), tl.float32)
    wait_for_kernel_before(OVERLAP)
    query = queries.load([batch * (HEADS + 2) * TOKENS + first_row, 0])
    for tile in range(split * TILES, split * TILES + TILES):
        seen = visible(valid, tile, past_tiles, keys, row, column, TOKENS, FIRST, BLOCK_N)
        if tile < past_tiles:
            k = past.load([batch, 0, tile * BLOCK_N, 0]).reshape(BLOCK_N, SIZE)
            v = past.load([batch, 1, tile * BLOCK_N, 0]).reshape(BLOCK_N, SIZE)
        else:
            start = (tile - past_tiles) * BLOCK_N
            k = own.load([batch, HEADS, start, 0]).reshape(BLOCK_N, SIZE)
            v = own.load([batch, HEADS + 1, start, 0]).reshape(BLOCK_N, SIZE)
        scores = tl.where(seen, tl.dot(query, k.T) * SCALE, HIDDEN_SCORE)
        most, norm, shares, shrink = weigh(scores, most, norm)
        total = tl.dot(shares.to(tl.bfloat16), v, total * shrink[:, None])

    row_of_all = (split * tl.num_programs(2) + batch) * ROWS + row
    tl.store(weight + row_of_all, most + tl.log2(norm), row < ROWS)
    tl.store(found + row_of_all[:, None] * SIZE + tl.arange(0, SIZE)[None, :],
             (total / norm[:, None]).to(tl.bfloat16), (row < ROWS)[:, None])


@triton.jit
def visible(valid, tile, past_tiles, keys, row, column, TOKENS: tl.constexpr,
            FIRST: tl.constexpr, BLOCK_N: tl.constexpr):
    """Say which columns of a tile, each a key, the rows see."""
    before = tile * BLOCK_N + column
    behind = (tile - past_tiles) * BLOCK_N + column  # Counts the own keys from 0.
    there = (tl.load(valid + before, before < keys, 0) != 0) | (
        (behind >= 0) & (behind < TOKENS))
    seen = there[None, :]
    if FIRST:
        seen = seen & ((behind <= 0)[None, :] | (row % TOKENS > 0)[:, None])
    return seen


@triton.jit
def weigh(scores, most, norm):
    """
    Let a tile of scores, binary logarithms, into the running softmax.

    Also returns the shares of the tile, and by how much the total before it shrinks.
    """
    higher = tl.maximum(most, tl.max(scores, 1))
    shrink = tl.exp2(most - higher)
    shares = tl.exp2(scores - higher[:, None])
    return higher, norm * shrink + tl.sum(shares, 1), shares, shrink


@triton.jit
def join_kernel(found, weight, output, HEADS: tl.constexpr, SIZE: tl.constexpr,
                TOKENS: tl.constexpr, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr,
                OVERLAP: tl.constexpr):
    """Write output bf16 [B * TOKENS, HEADS * SIZE]; BLOCK_S is at least SPLITS."""
    row, rows = tl.program_id(0), tl.num_programs(0)
    split, size = tl.arange(0, BLOCK_S), tl.arange(0, SIZE)
    wait_for_kernel_before(OVERLAP)
    share = tl.load(weight + split * rows + row, split < SPLITS, -float('inf'))
    part = tl.load(found + (split * rows + row)[:, None] * SIZE + size[None, :],
                   (split < SPLITS)[:, None], 0.0)
    share = tl.exp2(share - tl.max(share, 0))
    share /= tl.sum(share, 0)
    total = tl.sum(part.to(tl.float32) * share[:, None], 0)
    batch, head, token = row // (HEADS * TOKENS), row // TOKENS % HEADS, row % TOKENS
    target = ((batch * TOKENS + token) * HEADS + head) * SIZE + size
    tl.store(output + target, total.to(tl.bfloat16))
