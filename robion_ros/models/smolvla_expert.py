# SPDX-License-Identifier: Apache-2.0
"""
The action expert of SmolVLA: layers that see prefix and actions, and layers that see the prefix.

What a layer sees of the prefix is made once for all denoising steps. Knows neither steps nor
time. Axis letters are those of layers.py.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models.expert import attend_few
from robion_ros.models.layers import Attention, GatedMLP
from robion_ros.models.rotary import Rotary, rotate


class PrefixAttention(nn.Module):
    """Attention to nothing but keys and values of another stack, projected once more."""

    def __init__(self, width: int, heads: int, kv_heads: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        self.q_proj = nn.Linear(width, heads * head_size, bias=False)
        self.k_proj = nn.Linear(kv_heads * head_size, kv_heads * head_size, bias=False)
        self.v_proj = nn.Linear(kv_heads * head_size, kv_heads * head_size, bias=False)
        self.o_proj = nn.Linear(heads * head_size, width, bias=False)

    def queries(self, x: Tensor, turn: Rotary) -> Tensor:
        """Turn x [B, T, W] into queries [B, H, T, D]."""
        heads = self.q_proj(x).view(*x.shape[:2], -1, self.head_size).transpose(1, 2)
        return rotate(heads, turn)

    def join(self, output: Tensor) -> Tensor:
        """Turn what the heads found, [B, H, T, D], into [B, T, W]."""
        return self.o_proj(output.transpose(1, 2).flatten(2))


class JointLayer(nn.Module):
    """A layer in which actions see the prefix and those before them."""

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int, head_size: int,
                 norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.input_layernorm = norm(width)
        self.self_attn = Attention(width, heads, kv_heads, head_size)
        self.post_attention_layernorm = norm(width)
        self.mlp = GatedMLP(width, hidden, F.silu)

    def forward(self, x: Tensor, turn: Rotary, mask: Tensor, room: Tensor) -> Tensor:
        """
        Return x [B, T, W] after this layer.

        room [B, 2, G, K, D] holds keys and values of all K tokens attended to but the last T,
        which are x themselves; mask is [B, 1, T, K].
        """
        queries, own = self.self_attn.project(self.input_layernorm(x), turn)
        room[..., -x.shape[1]:, :] = own
        keys, values = room.unbind(1)
        x = x + self.self_attn.join(attend_few(queries, keys, values, mask))
        return x + self.mlp(self.post_attention_layernorm(x))


class PrefixLayer(nn.Module):
    """A layer in which actions see the prefix alone."""

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int, head_size: int,
                 norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.input_layernorm = norm(width)
        self.self_attn = PrefixAttention(width, heads, kv_heads, head_size)
        self.post_attention_layernorm = norm(width)
        self.mlp = GatedMLP(width, hidden, F.silu)

    def forward(self, x: Tensor, turn: Rotary, mask: Tensor, seen: Tensor) -> Tensor:
        """
        Return x [B, T, W] after this layer.

        seen [B, 2, G, K, D] is what project_again makes of the prefix for this layer; mask is
        [B, 1, 1, K].
        """
        keys, values = seen.unbind(1)
        queries = self.self_attn.queries(self.input_layernorm(x), turn)
        x = x + self.self_attn.join(attend_few(queries, keys, values, mask))
        return x + self.mlp(self.post_attention_layernorm(x))


def projections(layers: Sequence[PrefixLayer]) -> Tensor:
    """Return what project_again takes, [layers, 2, G D, G D]: the weights of all, side by side."""
    return torch.stack([torch.stack((layer.self_attn.k_proj.weight, layer.self_attn.v_proj.weight))
                        for layer in layers])


def project_again(cache: Sequence[Tensor], weights: Tensor) -> Tensor:
    """
    Project keys and values of the prefix, [B, 2, G, K, D] for each layer, for the expert.

    The heads of a token are one vector. All layers are one product; it depends on no step.
    Returns [B, layers, 2, G, K, D].
    """
    batch, _, groups, count, size = cache[0].shape
    rows = torch.stack(list(cache)).permute(0, 2, 1, 4, 3, 5)  # [layers, 2, B, K, G, D]
    rows = rows.reshape(*weights.shape[:2], batch * count, groups * size)
    made = (rows @ weights.transpose(2, 3)).view(*weights.shape[:2], batch, count, groups, size)
    return made.permute(2, 0, 1, 4, 3, 5).contiguous()
