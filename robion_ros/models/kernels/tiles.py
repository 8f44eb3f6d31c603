# SPDX-License-Identifier: Apache-2.0
"""
How the work of a layer is cut into blocks, found on an H200 and frozen here by SMs and batch.

benchmarks/adit_tiles.py looks for better ones. Any choice is right for any batch on any number
of multiprocessors (SMs), and slower where it was not made for them. Knows no kernel.
"""

from dataclasses import dataclass
import math


@dataclass(frozen=True)
class Tile:
    """The block of a product, and how the GPU works on it."""

    rows: int
    columns: int
    depth: int
    """How much of the depth is loaded at once."""
    stages: int
    """How many such loads are under way."""
    parts: int = 1
    """How many blocks share the depth, where parts are added later."""
    warps: int = 4


@dataclass(frozen=True)
class Span:
    """The block of attention."""

    rows: int
    """Of queries, over all heads: a multiple of 64."""
    keys: int
    """That are loaded at once."""
    tiles: int
    """How many times a block loads keys."""

    @property
    def warps(self) -> int:
        """How many a block has: each takes as many rows as a product of tensor cores does."""
        return self.rows // 16

    def splits(self, past: int, own: int) -> int:
        """Return among how many blocks keys are split, those before and the tokens' own."""
        return math.ceil((math.ceil(past / self.keys) + math.ceil(own / self.keys)) / self.tiles)


@dataclass(frozen=True)
class Tiles:
    """The choice for all kernels."""

    qkv: Tile
    attention: Span
    output: Tile
    gate_up: Tile
    down: Tile
    mix: Tile
    """Of the product that opens a step."""
    norm_warps: int = 8
    join_warps: int = 1
    """With one, nothing is exchanged between warps, which took longer than the work."""


WHOLE = {
    1: Tiles(qkv=Tile(64, 32, 256, 4), attention=Span(64, 128, 1),
             output=Tile(64, 32, 128, 4, parts=4), gate_up=Tile(64, 64, 128, 6),
             down=Tile(64, 32, 256, 4, parts=4), mix=Tile(64, 64, 64, 2, parts=8)),
    2: Tiles(qkv=Tile(64, 64, 128, 6), attention=Span(64, 128, 1),
             output=Tile(64, 64, 128, 4, parts=4), gate_up=Tile(64, 128, 128, 4),
             down=Tile(64, 64, 256, 3, parts=4), mix=Tile(128, 64, 64, 2, parts=8)),
    4: Tiles(qkv=Tile(64, 128, 128, 4), attention=Span(64, 64, 2),
             output=Tile(64, 64, 128, 6, parts=2), gate_up=Tile(128, 128, 64, 6, warps=8),
             down=Tile(128, 64, 128, 4, parts=4, warps=8), mix=Tile(128, 64, 64, 2, parts=8)),
}
"""By batch, with all of the GPU."""

ON_20 = {
    1: Tiles(qkv=Tile(64, 128, 128, 4), attention=Span(64, 64, 3),
             output=Tile(64, 128, 128, 4, parts=2), gate_up=Tile(64, 128, 64, 4),
             down=Tile(64, 256, 64, 5, parts=5), mix=Tile(64, 64, 128, 6)),
    2: Tiles(qkv=Tile(64, 256, 64, 5, warps=8), attention=Span(64, 64, 6),
             output=Tile(64, 128, 128, 4), gate_up=Tile(128, 128, 64, 3),
             down=Tile(128, 128, 64, 3, parts=5, warps=8), mix=Tile(128, 64, 128, 4)),
    4: Tiles(qkv=Tile(64, 128, 64, 4), attention=Span(64, 64, 6),
             output=Tile(64, 128, 64, 4), gate_up=Tile(128, 128, 64, 3, warps=8),
             down=Tile(128, 128, 64, 6), mix=Tile(64, 128, 64, 4, warps=8)),
}
ON_28 = {
    1: Tiles(qkv=Tile(64, 128, 128, 4), attention=Span(64, 128, 2),
             output=Tile(64, 128, 128, 4, parts=3), gate_up=Tile(64, 128, 64, 4),
             down=Tile(64, 128, 128, 4, parts=3), mix=Tile(64, 64, 128, 3, parts=2)),
    2: Tiles(qkv=Tile(64, 256, 64, 5, warps=8), attention=Span(64, 64, 4),
             output=Tile(128, 128, 64, 6, parts=3), gate_up=Tile(128, 64, 64, 4),
             down=Tile(128, 128, 64, 6, parts=3), mix=Tile(128, 64, 128, 4)),
    4: Tiles(qkv=Tile(128, 64, 64, 4), attention=Span(64, 64, 7),
             output=Tile(64, 128, 64, 4), gate_up=Tile(128, 128, 64, 3, warps=8),
             down=Tile(128, 128, 64, 6), mix=Tile(128, 128, 64, 6, warps=8)),
}
ON_36 = {
    1: Tiles(qkv=Tile(64, 128, 128, 4), attention=Span(64, 128, 2),
             output=Tile(64, 64, 128, 6, parts=2), gate_up=Tile(64, 128, 64, 4),
             down=Tile(64, 64, 128, 6, parts=2), mix=Tile(64, 64, 128, 4, parts=2, warps=8)),
    2: Tiles(qkv=Tile(128, 64, 64, 4), attention=Span(64, 64, 3),
             output=Tile(64, 128, 128, 4, parts=2), gate_up=Tile(128, 128, 64, 3),
             down=Tile(128, 64, 128, 4, parts=2),
             mix=Tile(128, 64, 128, 4, parts=2, warps=8)),
    4: Tiles(qkv=Tile(64, 128, 64, 4), attention=Span(64, 64, 7),
             output=Tile(64, 128, 128, 4), gate_up=Tile(128, 128, 64, 3, warps=8),
             down=Tile(64, 256, 64, 5, parts=2), mix=Tile(64, 128, 128, 4)),
}

GATED = Tile(128, 128, 64, 4, warps=8)
"""Of the first product of a gated feed-forward part of many rows; so many columns of each half."""

BY_SMS = {132: WHOLE, 36: ON_36, 28: ON_28, 20: ON_20}
CHOICES = tuple(tiles for choice in BY_SMS.values() for tiles in choice.values())


def for_batch(batch: int, sms: int | None = None) -> Tiles:
    """
    Return the choice for a batch on so many SMs, or all.

    It is that for the number measured that is nearest in ratio, and there that of the next
    larger batch measured, or the largest.
    """
    choice = WHOLE if sms is None else BY_SMS[min(
        BY_SMS, key=lambda measured: abs(math.log(measured / sms)))]
    fitting = (tiles for size, tiles in choice.items() if size >= batch)
    return next(fitting, choice[max(choice)])
