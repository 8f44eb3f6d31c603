# SPDX-License-Identifier: Apache-2.0
"""
An action expert of Gemma layers: run once for each denoising step, behind tokens that stay.

What its norms learn from the step comes from outside, so that it is computed once for all
requests. Knows neither steps nor time. Axis letters are those of layers.py.
"""

from collections.abc import Callable

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models.layers import Attention, GatedMLP, gelu_tanh
from robion_ros.models.rotary import Rotary


class GemmaNorm(nn.Module):
    """RMS norm in float32, whatever x is; the weight is stored less one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return x [..., W] normalised."""
        return F.rms_norm(x.float(), x.shape[-1:], 1 + self.weight, 1e-6).to(x.dtype)

    def modulation(self, condition: Tensor) -> Tensor:
        """Return what modulated takes for each condition [N, W']: the same, [N, 3, W]."""
        fixed = self.weight, torch.zeros_like(self.weight), torch.ones_like(self.weight)
        return torch.stack(fixed).expand(len(condition), 3, -1)


class AdaptiveNorm(nn.Module):
    """RMS norm whose scale, shift and the gate of what follows depend on a condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 3 * width)

    def modulation(self, condition: Tensor) -> Tensor:
        """Return what modulated takes for each condition [N, W]: [N, 3, W]."""
        return self.dense(condition).unflatten(-1, (3, -1))


class ExpertLayer(nn.Module):
    """
    One layer of an action expert.

    Its keys and values go into room that is kept for them behind those of the other tokens. A
    faster implementation has forward to replace, and nothing else.
    """

    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int, head_size: int,
                 norm: Callable[[int], GemmaNorm | AdaptiveNorm]) -> None:
        super().__init__()
        self.input_layernorm = norm(width)
        self.self_attn = Attention(width, heads, kv_heads, head_size)
        self.post_attention_layernorm = norm(width)
        self.mlp = GatedMLP(width, hidden, gelu_tanh)

    def modulation(self, condition: Tensor) -> Tensor:
        """Return norms of forward for each condition [N, W]: [N, 2, 3, W], float32."""
        return torch.stack([norm.modulation(condition) for norm in
                            (self.input_layernorm, self.post_attention_layernorm)], 1)

    def remember(self, x: Tensor, turn: Rotary, room: Tensor, norms: Tensor) -> Tensor:
        """Write the keys and values of x into the end of room; return the queries."""
        queries, own = self.self_attn.project(modulated(x, norms[0]), turn)
        room[..., -x.shape[1]:, :] = own
        return queries

    def forward(self, x: Tensor, turn: Rotary, mask: Tensor, room: Tensor,
                norms: Tensor) -> Tensor:
        """
        Return x [B, T, W] after this layer.

        room [B, 2, G, K, D] holds the keys and values of all K tokens attended to but the last
        T, which are x themselves; norms is [2, 3, W], mask [B, 1, 1, K].
        """
        queries = self.remember(x, turn, room, norms)
        keys, values = room.unbind(1)
        output = attend_few(queries, keys, values, mask).transpose(1, 2).flatten(2)
        x = x + self.self_attn.o_proj(output) * norms[0, 2].to(x.dtype)
        return x + self.mlp(modulated(x, norms[1])) * norms[1, 2].to(x.dtype)


def attend_few(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """
    Return what attend does.

    The scores of a few queries are small enough to be written out, and two products keep a GPU
    busier than a fused kernel does that has one block for every 64 of them.
    """
    batch, groups, _, size = keys.shape
    rows = queries.reshape(batch, groups, -1, size) * size ** -0.5
    scores = rows @ keys.transpose(2, 3)
    if mask.shape[2] == 1:
        scores = scores + mask
    else:  # Queries stand head by head.
        scores = (scores.unflatten(2, (-1, mask.shape[2])) + mask[:, :, None]).flatten(2, 3)
    shares = scores.softmax(-1, torch.float32).to(values.dtype)
    return (shares @ values).reshape(queries.shape)


def modulated(x: Tensor, norm: Tensor) -> Tensor:
    """Return the RMS norm of x [..., W], in float32, times 1 + scale plus shift, norm[:2]."""
    normed = F.rms_norm(x.float(), x.shape[-1:], eps=1e-6)
    return (normed * (1 + norm[0]) + norm[1]).to(x.dtype)
