# SPDX-License-Identifier: Apache-2.0
"""
What Qwen3-VL adds to Qwen3: its vision tower, and positions of three axes.

Pictures have a size that is known beforehand, so what depends on it is computed once. Parameters
are named as in Hugging Face checkpoints. Knows neither prompts nor actions. Axis letters are
those of layers.py; S is the tokens of pictures, D' half a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models.layers import gelu_tanh
from robion_ros.models.rotary import Rotary, rotate, turned

ABSENT = 2**30
"""Order of a token that does not exist: behind all others."""


class VisionAttention(nn.Module):
    """Every token of a picture attends to every other, turned by its row and column."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, turn: Rotary) -> Tensor:
        """Return the change of x [B, T, W]."""
        heads = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = heads.unbind(0)
        output = F.scaled_dot_product_attention(rotate(queries, turn), rotate(keys, turn), values)
        return self.proj(output.transpose(1, 2).flatten(2))


class VisionBlock(nn.Module):
    """One layer of the vision tower."""

    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = VisionAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({'linear_fc1': nn.Linear(width, hidden),
                                  'linear_fc2': nn.Linear(hidden, width)})

    def forward(self, x: Tensor, turn: Rotary) -> Tensor:
        """Return x [B, T, W] after this layer."""
        x = x + self.attn(self.norm1(x), turn)
        return x + self.mlp['linear_fc2'](gelu_tanh(self.mlp['linear_fc1'](self.norm2(x))))


class Merger(nn.Module):
    """Turn squares of neighbouring tokens into one token each of the language model."""

    def __init__(self, width: int, merged: int, out: int, norm_merged: bool) -> None:
        super().__init__()
        whole = width * merged
        self.merged = merged
        self.norm = nn.LayerNorm(whole if norm_merged else width, eps=1e-6)
        self.linear_fc1, self.linear_fc2 = nn.Linear(whole, whole), nn.Linear(whole, out)

    def forward(self, x: Tensor) -> Tensor:
        """Turn x [B, T, W], neighbours one after the other, into [B, T / merged, W']."""
        whole = (len(x), x.shape[1] // self.merged, -1)
        x = self.norm(x.reshape(whole) if self.norm.weight.numel() > x.shape[2] else x)
        return self.linear_fc2(F.gelu(self.linear_fc1(x.reshape(whole))))


@dataclass(frozen=True)
class Grid:
    """What the vision tower needs for pictures of one size."""

    places: Tensor
    """[T, W], the embedding of the patches' places."""
    turn: Rotary


class VisionTower(nn.Module):
    """Pictures to tokens of the language model, and what is added to these after its layers."""

    def __init__(self, patch: int, merge: int, frames: int, places: int, width: int, hidden: int,
                 heads: int, layers: int, taps: Sequence[int], out: int) -> None:
        super().__init__()
        self.patch, self.merge, self.heads, self.taps = patch, merge, heads, tuple(taps)
        self.patch_embed: Any = nn.ModuleDict({
            'proj': nn.Conv3d(3, width, (frames, patch, patch))})
        self.pos_embed = nn.Embedding(places, width)
        self.blocks = nn.ModuleList(VisionBlock(width, hidden, heads) for _ in range(layers))
        self.merger = Merger(width, merge ** 2, out, norm_merged=False)
        self.deepstack_merger_list = nn.ModuleList(
            Merger(width, merge ** 2, out, norm_merged=True) for _ in taps)

    def kernel(self) -> Tensor:
        """Return what a patch is multiplied with, [W, 3 p p]: a picture is every frame."""
        weight: Tensor = self.patch_embed['proj'].weight
        return weight.sum(2).flatten(1)

    def grid(self, rows: int, columns: int) -> Grid:
        """Compute what pictures of so many rows and columns of pixels need."""
        rows, columns = rows // self.patch, columns // self.patch
        table = self.pos_embed.weight
        order = torch.arange(rows * columns).view(
            rows // self.merge, self.merge, columns // self.merge, self.merge)
        order = order.transpose(1, 2).flatten()
        row, column = order // columns, order % columns
        places = interpolated(table, rows, columns)[order.to(table.device)]
        half = table.shape[1] // self.heads // 2
        angles = torch.cat([axis[:, None] * frequencies(half, 10_000.0) for axis in (row, column)],
                           1).to(table.device)
        return Grid(places, turned(angles[None]))

    def forward(self, images: Tensor, kernel: Tensor, grid: Grid) -> tuple[Tensor, list[Tensor]]:
        """Turn pictures [B, H, W, 3], normalised, into [B, S, W'] and, of each tap, the same."""
        count, size, merge = len(images), self.patch, self.merge
        rows, columns = (pixels // size // merge for pixels in images.shape[1:3])
        patches = images.reshape(count, rows, merge, size, columns, merge, size, 3)
        patches = patches.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(
            count, rows * columns * merge ** 2, -1)
        x = F.linear(patches, kernel, self.patch_embed['proj'].bias) + grid.places
        # The embeddings may be kept in a higher precision than the layers.
        x = x.to(self.merger.norm.weight.dtype)
        taps: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = block(x, grid.turn)
            if index in self.taps:
                taps.append(self.deepstack_merger_list[len(taps)](x))
        return self.merger(x), taps


def interpolated(table: Tensor, rows: int, columns: int) -> Tensor:
    """Stretch a square table of places [N, W] over rows and columns: [rows * columns, W]."""
    side = int(len(table) ** 0.5)
    mix: Tensor | float = 0.0
    corners = []
    for count in (rows, columns):
        place = torch.linspace(0, side - 1, count)
        low = place.int()
        corners.append(((low, 1 - (place - low)), ((low + 1).clip(max=side - 1), place - low)))
    for row, of_row in corners[0]:
        for column, of_column in corners[1]:
            index = (row[:, None] * side + column).flatten().to(table.device)
            weight = (of_row[:, None] * of_column).flatten()[:, None].to(table.device)
            mix = mix + table[index] * weight
    assert isinstance(mix, Tensor)
    return mix


def frequencies(size: int, base: float) -> Tensor:
    """Return the angles of one place, for so many values of a head: [size / 2]."""
    return 1.0 / base ** (torch.arange(0, size, 2, dtype=torch.float32) / size)


def axes(sections: Sequence[int]) -> Tensor:
    """Return which axis of a place (0 time, 1 row, 2 column) turns each pair: [D']."""
    of_pair = torch.zeros(sum(sections), dtype=torch.int64)
    for axis in (1, 2):
        of_pair[axis:3 * sections[axis]:3] = axis
    return of_pair


def causal_mask(order: Tensor, dtype: torch.dtype) -> Tensor:
    """Let tokens of order [B, T] see those before them and themselves: mask [B, 1, T, T]."""
    # A token that does not exist is behind all others: none sees it, and it is still a number.
    seen = order[:, None] <= order[..., None]
    mask = torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, -torch.inf)
    return mask[:, None]
