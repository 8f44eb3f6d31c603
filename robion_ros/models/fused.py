# SPDX-License-Identifier: Apache-2.0
"""
What layers compute on a GPU in one kernel of their own, where that is faster than a library.

Each operation stands for itself when layers are compiled. takes_* say for which arguments an
operation is there; for all others layers call torch. Knows no model, nor what a kernel does.
Axis letters are those of layers.py.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from robion_ros.models.kernels.tiles import GATED

MOST_KEYS_BY_TOKEN = 512
"""A mask that differs from token to token is read for every head: a library is faster beyond."""
WAVES = 1.5
"""Fewest blocks for each multiprocessor, of a product; a library cuts small ones better."""
SHARED_MEMORY = 227 * 2**10
"""Bytes that blocks were made for."""
FEW = 128
"""Tokens of which a compiler turns the heads as fast, as a part of what it does around that."""
HAS_TRITON = find_spec('triton') is not None


def can_run(x: Tensor) -> bool:
    """Say whether kernels run where x is, and take its type."""
    return HAS_TRITON and x.is_cuda and x.dtype == torch.bfloat16 and has_room(x.device)


def has_room(device: torch.device) -> bool:
    """Say whether a GPU is one that kernels are cut for: Hopper's and later large ones."""
    gpu: Any = torch.cuda.get_device_properties(device)
    enough: bool = gpu.major >= 9 and gpu.shared_memory_per_block_optin >= SHARED_MEMORY
    return enough


def takes_attention(queries: Tensor, keys: Tensor, mask: Tensor | None) -> bool:
    """Say whether attend takes queries [B, H, T, D], keys [B, G, K, D] and a mask."""
    if mask is None or not can_run(queries):
        return False  # Without a mask, a library's kernel is as fast.
    batch, _, tokens, size = queries.shape
    count = keys.shape[2]
    by_key = mask.shape == (batch, 1, 1, count)
    by_token = mask.shape == (batch, 1, tokens, count) and count <= MOST_KEYS_BY_TOKEN
    return ((by_key or by_token) and queries.numel() > 0 and count > 0 and size % 8 == 0
            and size <= 256 and queries.stride(3) == 1 and mask.stride(3) == 1)


@torch.library.custom_op('robion::attend', mutates_args=(), device_types='cuda')
def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """
    Return softmax(q k' / sqrt(D) + mask) v, [B, T, H, D]; mask is [B, 1, T or 1, K].

    Whom -inf lets see nothing gets zeros.
    """
    from robion_ros.models.kernels import prefix
    return prefix.attend(queries, keys, values, mask)


@attend.register_fake
def _(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    batch, heads, tokens, size = queries.shape
    return queries.new_empty(batch, tokens, heads, size)


def takes_gated(x: Tensor, weights: Tensor) -> bool:
    """Say whether gated takes x [..., W] and weights [2 N, W]."""
    if not can_run(x):
        return False
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    rows, hidden = x.numel() // x.shape[-1], weights.shape[0] // 2
    blocks = -(-rows // GATED.rows) * (hidden // GATED.columns)
    return (hidden % GATED.columns == 0 and x.shape[-1] % GATED.depth == 0
            and blocks >= WAVES * sms)


@torch.library.custom_op('robion::gated', mutates_args=(), device_types='cuda')
def gated(x: Tensor, weights: Tensor, silu: bool) -> Tensor:
    """Return act(gate) * up [..., N], the halves of x weights'; act is GELU (tanh) or SiLU."""
    from robion_ros.models.kernels import gated as kernels
    rows = x.contiguous().flatten(0, -2)
    return kernels.gated(rows, weights, silu).view(*x.shape[:-1], -1)


@gated.register_fake
def _(x: Tensor, weights: Tensor, silu: bool) -> Tensor:
    return x.new_empty(*x.shape[:-1], weights.shape[0] // 2)


@torch.library.custom_op('robion::add_norm', mutates_args=(), device_types='cuda')
def add_norm(x: Tensor, change: Tensor, weight: Tensor, bias: Tensor,
             eps: float) -> tuple[Tensor, Tensor]:
    """Return x + change and its layer norm, [..., W] as both."""
    from robion_ros.models.kernels import layer_norm
    return layer_norm.add_norm(x.contiguous(), change.contiguous(), weight, bias, eps)


@add_norm.register_fake
def _(x: Tensor, change: Tensor, weight: Tensor, bias: Tensor,
      eps: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def takes_turn(x: Tensor, size: int) -> bool:
    """Say whether turn_heads takes the heads, of a size, of x [B, T, W]."""
    return can_run(x) and x.shape[1] >= FEW and size & (size - 1) == 0


@torch.library.custom_op('robion::turn_heads', mutates_args=(), device_types='cuda')
def turn_heads(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int,
               size: int) -> tuple[Tensor, Tensor]:
    """
    Turn qkv [B, T, (H + 2 G) D] into queries [B, T, H, D] and keys and values [B, 2, G, T, D].

    cos and sin are those of rotary.Rotary; values do not turn.
    """
    from robion_ros.models.kernels import turn
    return turn.turn_heads(qkv.contiguous(), cos.contiguous(), sin.contiguous(), heads, size)


@turn_heads.register_fake
def _(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, size: int) -> tuple[Tensor, Tensor]:
    batch, tokens, width = qkv.shape
    groups = (width // size - heads) // 2
    return (qkv.new_empty(batch, tokens, heads, size),
            qkv.new_empty(batch, 2, groups, tokens, size))
