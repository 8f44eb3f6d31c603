# SPDX-License-Identifier: Apache-2.0
"""
A layer of Qwen3: queries and keys are normed head by head before they are turned.

Knows no model that it is a part of. Axis letters are those of layers.py.
"""

from functools import partial

import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.models.layers import Attention, DecoderLayer, PreciseNorm
from robion_ros.models.rotary import Rotary, rotate

qwen_norm = partial(PreciseNorm, eps=1e-6)


class Qwen3Attention(Attention):
    """Attention with a norm of each head."""

    def __init__(self, width: int, heads: int, kv_heads: int, head_size: int) -> None:
        super().__init__(width, heads, kv_heads, head_size)
        self.q_norm, self.k_norm = qwen_norm(head_size), qwen_norm(head_size)

    def project(self, x: Tensor, turn: Rotary | None = None) -> tuple[Tensor, Tensor]:
        """Turn x [B, T, W] into queries [B, H, T, D] and keys and values [B, 2, G, T, D]."""
        heads = self.qkv(x).view(*x.shape[:2], -1, self.head_size).transpose(1, 2)
        queries, keys, values = heads.split((self.heads, self.kv_heads, self.kv_heads), 1)
        queries, keys = self.q_norm(queries), self.k_norm(keys)
        if turn is not None:
            queries, keys = rotate(queries, turn), rotate(keys, turn)
        return queries, torch.stack((keys, values), 1)


class Qwen3Layer(DecoderLayer):
    """One layer of the language model."""

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int,
                 head_size: int) -> None:
        super().__init__(width, hidden, heads, kv_heads, head_size, F.silu, qwen_norm)
        self.self_attn = Qwen3Attention(width, heads, kv_heads, head_size)
