# SPDX-License-Identifier: Apache-2.0
"""
Layers of a diffusion transformer: actions attend by turns to a context and to each other.

What the norms learn from the denoising step, and the keys and values of the context, come from
outside, so that they are computed once. Knows neither steps nor requests. Axis letters are those
of layers.py.
"""

import math

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models.layers import attend, Attention, FusedLinear, gelu_linear


class FeedForward(nn.Module):
    """The feed-forward part of a layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the change of x [B, T, W]."""
        return self.down(gelu_linear(x, self.up))


class TimeNorm(nn.Module):
    """A layer norm whose scale and shift depend on the denoising step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)

    def modulation(self, condition: Tensor) -> Tensor:
        """Return what modulated takes for each condition [N, W]: [N, 2, W]."""
        return self.linear(condition).unflatten(-1, (2, -1))


class CrossAttention(nn.Module):
    """Attention of actions to a context of another width."""

    def __init__(self, width: int, source: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_size = heads, width // heads
        self.q_proj = nn.Linear(width, width)
        self.kv = FusedLinear(source, {'k_proj': width, 'v_proj': width}, bias=True)
        self.o_proj = nn.Linear(width, width)

    def remember(self, context: Tensor) -> Tensor:
        """Return the keys and values [B, 2, H, K, D] of a context [B, K, W']."""
        both = self.kv(context).unflatten(-1, (2, self.heads, self.head_size))
        return both.permute(0, 2, 3, 1, 4)

    def forward(self, x: Tensor, past: Tensor, mask: Tensor) -> Tensor:
        """Let x [B, T, W] attend to what is remembered; mask is [B, 1, 1, K]."""
        queries = self.q_proj(x).unflatten(-1, (self.heads, self.head_size)).transpose(1, 2)
        keys, values = past.unbind(1)
        output = attend(queries, keys, values, mask)
        return self.o_proj(output.transpose(1, 2).flatten(2))


class AdapterLayer(nn.Module):
    """A layer without steps, between a language model and a diffusion transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.self_attn = Attention(width, heads, heads, width // heads, bias=True)
        self.ff = FeedForward(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x [B, T, W] after this layer; mask [B, 1, 1, T] hides tokens from all."""
        x = x + self.self_attn(self.norm1(x), None, mask)[0]
        return x + self.ff(self.norm3(x))


class SelfLayer(nn.Module):
    """A layer in which the tokens of the actions see each other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = TimeNorm(width)
        self.self_attn = Attention(width, heads, heads, width // heads, bias=True)
        self.ff = FeedForward(width)

    def forward(self, x: Tensor, norm: Tensor) -> Tensor:
        """Return x [B, T, W] after this layer; norm is [2, W] or [2, B, 1, W]."""
        x = x + self.self_attn.among(modulated(x, norm))
        return x + self.ff(normed(x))


class CrossLayer(nn.Module):
    """A layer in which they see the context."""

    def __init__(self, width: int, source: int, heads: int) -> None:
        super().__init__()
        self.norm1 = TimeNorm(width)
        self.self_attn = CrossAttention(width, source, heads)
        self.ff = FeedForward(width)

    def forward(self, x: Tensor, norm: Tensor, past: Tensor, mask: Tensor) -> Tensor:
        """Return x [B, T, W] after this layer; norm is [2, W] or [2, B, 1, W]."""
        x = x + self.self_attn(modulated(x, norm), past, mask)
        return x + self.ff(normed(x))


def normed(x: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return the layer norm of x [..., W], in float32."""
    return F.layer_norm(x.float(), x.shape[-1:], eps=epsilon).to(x.dtype)


def modulated(x: Tensor, norm: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Return the same times 1 + scale plus shift, the two of norm [2, ..., W]."""
    exact = F.layer_norm(x.float(), x.shape[-1:], eps=epsilon)
    return (exact * (1 + norm[0]) + norm[1]).to(x.dtype)


def step_embedding(buckets: tuple[int, ...], width: int) -> Tensor:
    """Return cosines, then sines, of the steps that a transformer is told: [N, width]."""
    # In float32, as in training: the angles are large, and their roundings count.
    half = width // 2
    speeds = torch.exp(-math.log(10_000) * torch.arange(half).float() / (half - 1))
    angles = torch.tensor(buckets).float()[:, None] * speeds
    return torch.cat((angles.cos(), angles.sin()), 1)


def action_embedding(buckets: tuple[int, ...], width: int) -> Tensor:
    """Return sines, then cosines, of the steps that the encoder of actions is told: [N, width]."""
    half = width // 2
    speeds = (-torch.arange(half).float() * (torch.log(torch.tensor(10_000.0)) / half)).exp()
    angles = torch.tensor(buckets).float()[:, None] * speeds
    return torch.cat((angles.sin(), angles.cos()), 1)
