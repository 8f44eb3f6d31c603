# SPDX-License-Identifier: Apache-2.0
"""
Where tokens stand, and how queries and keys turn by it.

Knows neither layers nor models. Axis letters are those of layers.py.
"""

import torch
from torch import Tensor

Rotary = tuple[Tensor, Tensor]
"""Cosines and signed sines of the tokens' positions: [B, 1, T, D] each."""


def positions(valid: Tensor) -> Tensor:
    """Count the tokens that exist, from 0: bool [B, T] to int64 [B, T]."""
    return valid.cumsum(1) - 1


def rotary(places: Tensor, head_size: int, base: float = 10_000.0) -> Rotary:
    """Return what rotate needs for tokens at places [B, T]."""
    half = torch.arange(head_size // 2, device=places.device) / (head_size // 2)
    return turned(places[..., None] * base ** -half)


class RotaryTable:
    """What rotate needs for tokens at any place below a count, computed once."""

    def __init__(self, count: int, head_size: int, device: torch.device,
                 base: float = 10_000.0) -> None:
        places = torch.arange(count, device=device)
        self._cos, self._sin = (part[0, 0] for part in rotary(places[None], head_size, base))

    def __call__(self, places: Tensor) -> Rotary:
        """
        Return the rotation of tokens at places int64 [B, T].

        At -1, where positions puts what stands before the first token that exists, it is any.
        """
        return self._cos[places][:, None], self._sin[places][:, None]


def turned(angles: Tensor) -> Rotary:
    """Return what rotate needs for tokens whose pairs turn by angles [B, T, D / 2]."""
    cos, sin = angles[:, None].cos(), angles[:, None].sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def rotate(x: Tensor, turn: Rotary) -> Tensor:
    """Rotate heads [B, H, T, D] to their positions; the halves of D are the coordinates."""
    cos, sin = turn
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)
