# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
What stands between the product of queries, keys and values and attention: one block a token.

Knows no model.
"""

from torch import Tensor
import triton
import triton.language as tl


@triton.jit
def turn_kernel(qkv, cos, sin, queries, own, tokens, turn_batch, turn_token,
                HEADS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr,
                BLOCK: tl.constexpr):
    """
    Write queries [B, T, HEADS, SIZE], and own [B, 2, GROUPS, T, SIZE], keys and values.

    qkv is [B, T, HEADS + 2 GROUPS, SIZE], and BLOCK at least as many as that.
    """
    row = tl.program_id(0)
    batch, token = row // tokens, row % tokens
    head, half = tl.arange(0, BLOCK), tl.arange(0, SIZE // 2)
    place = (row * (HEADS + 2 * GROUPS) + head)[:, None] * SIZE + half[None, :]
    exists = (head < HEADS + 2 * GROUPS)[:, None]
    low = tl.load(qkv + place, exists, 0.0).to(tl.float32)
    high = tl.load(qkv + place + SIZE // 2, exists, 0.0).to(tl.float32)
    angle = batch * turn_batch + token * turn_token + half
    turned = (head < HEADS + GROUPS)[:, None]  # Values are not.
    c = tl.where(turned, tl.load(cos + angle)[None, :], 1.0)
    s = tl.where(turned, tl.load(sin + angle + SIZE // 2)[None, :], 0.0)
    first, second = (low * c - high * s).to(tl.bfloat16), (high * c + low * s).to(tl.bfloat16)
    to_query = (row * HEADS + head)[:, None] * SIZE + half[None, :]
    tl.store(queries + to_query, first, (head < HEADS)[:, None])
    tl.store(queries + to_query + SIZE // 2, second, (head < HEADS)[:, None])
    other = tl.maximum(head - HEADS, 0)  # Keys, group by group, then values.
    to_own = ((batch * 2 * GROUPS + other) * tokens + token)[:, None] * SIZE + half[None, :]
    is_own = exists & (head >= HEADS)[:, None]
    tl.store(own + to_own, first, is_own)
    tl.store(own + to_own + SIZE // 2, second, is_own)


def turn_heads(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int,
               size: int) -> tuple[Tensor, Tensor]:
    """Return queries [B, T, H, D] and own [B, 2, G, T, D]; fused.turn_heads says of what."""
    batch, tokens, width = qkv.shape
    count = width // size
    groups = (count - heads) // 2
    queries = qkv.new_empty(batch, tokens, heads, size)
    own = qkv.new_empty(batch, 2, groups, tokens, size)
    turn_kernel[(batch * tokens,)](
        qkv, cos, sin, queries, own, tokens, cos.stride(0) if len(cos) > 1 else 0,
        cos.stride(2), HEADS=heads, GROUPS=groups, SIZE=size,
        BLOCK=triton.next_power_of_2(count), num_warps=4)
    return queries, own
