# SPDX-License-Identifier: Apache-2.0
"""
The expert of Xiaomi-Robotics-0: each layer reads the keys of one of the language model.

What its norms learn from the step comes from outside, so that it is computed once for all
requests. Knows neither steps nor time. Axis letters are those of layers.py.
"""

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models.layers import GatedMLP
from robion_ros.models.qwen3 import qwen_norm
from robion_ros.models.rotary import Rotary, rotate


class XiaomiAttention(nn.Module):
    """Attention to kept keys and values and, causally, to its own."""

    def __init__(self, width: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        self.qkv_proj = nn.Linear(width, 3 * width)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.q_norm, self.k_norm = qwen_norm(head_size), qwen_norm(head_size)

    def forward(self, x: Tensor, turn: Rotary, mask: Tensor, room: Tensor) -> Tensor:
        """Return the change of x [B, T, W]; room and mask are those of XiaomiLayer."""
        heads = self.qkv_proj(x).view(*x.shape[:2], 3, -1, self.head_size)
        queries, keys, values = heads.unbind(2)
        queries = rotate(self.q_norm(queries).transpose(1, 2), turn)
        room[:, 0, :, -x.shape[1]:] = rotate(self.k_norm(keys).transpose(1, 2), turn)
        room[:, 1, :, -x.shape[1]:] = values.transpose(1, 2)
        keys, values = room.unbind(1)
        output = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.o_proj(output.transpose(1, 2).flatten(2))


class XiaomiLayer(nn.Module):
    """One layer: four norms, and what comes out is normalised."""

    def __init__(self, width: int, head_size: int) -> None:
        super().__init__()
        self.attn = XiaomiAttention(width, head_size)
        self.mlp = GatedMLP(width, 4 * width, F.silu)
        self.input_layernorm, self.middle_layernorm = qwen_norm(width), qwen_norm(width)
        self.post_layernorm, self.final_layernorm = qwen_norm(width), qwen_norm(width)
        self.adaln_table = nn.Parameter(torch.zeros(6, width))

    def forward(self, x: Tensor, turn: Rotary, mask: Tensor, room: Tensor,
                norms: Tensor) -> Tensor:
        """
        Return x [B, T, W] after this layer.

        room [B, 2, H, K, D] holds the keys and values of all K tokens attended to but the last
        T, which are x themselves and are written there. mask is [B, 1, T, K]; norms, float32
        [6, W] or [6, B, 1, W], are shift, scale and gate of attention and of the rest.
        """
        change = self.attn(shifted(self.input_layernorm(x), norms[:2]), turn, mask, room)
        x = self.middle_layernorm(x + change * norms[2].to(x.dtype))
        change = self.mlp(shifted(self.post_layernorm(x), norms[3:5]))
        return self.final_layernorm(x + change * norms[5].to(x.dtype))


def shifted(x: Tensor, norm: Tensor) -> Tensor:
    """Return x [..., W] times 1 + scale plus shift, norm[1] and norm[0], in float32 till then."""
    return (x.float() * (1 + norm[1]) + norm[0]).to(x.dtype)
