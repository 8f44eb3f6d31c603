# SPDX-License-Identifier: Apache-2.0
"""
Packs the tensors of a request into one block of bytes, so that one copy brings them to the device.

Knows neither models nor what the tensors mean.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from robion_ros.models.protocol import Tensors

ALIGNMENT = 256
"""Of tensors in a block, bytes: what a GPU's allocator aligns them to."""


@runtime_checkable
class Packs(Protocol):
    """A model that takes requests packed."""

    def pack(self, inputs: Tensors, noise: torch.Tensor) -> 'Block':
        """Copy a request's VLM inputs, without the batch axis, and its noise [T, A']."""


@dataclass(frozen=True)
class Place:
    """Where a tensor stands in a block."""

    start: int
    """Bytes."""
    size: int
    """Bytes."""
    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class Layout:
    """How tensors of given shapes and dtypes stand in a block."""

    places: Mapping[str, Place]
    size: int
    """Of a block, bytes."""

    def views(self, blocks: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the tensors in blocks, uint8 [..., size], as views [..., *shape] of it."""
        return {name: blocks[..., place.start:place.start + place.size].view(place.dtype)
                .view((*blocks.shape[:-1], *place.shape)) for name, place in self.places.items()}


class Block:
    """A request's tensors in one piece. Its memory is lent: it goes back when nobody holds it."""

    def __init__(self, memory: torch.Tensor, home: deque[torch.Tensor] | None) -> None:
        self.memory = memory
        """uint8 [size]."""
        self._home = home

    def __del__(self) -> None:
        if self._home is not None:
            self._home.append(self.memory)


class Blocks:
    """
    Memory for the blocks of requests that wait or run, pinned for a GPU.

    A block must be held until every copy from it has ended. Any thread may pack; none calls CUDA.
    """

    def __init__(self, layout: Layout, count: int, pinned: bool) -> None:
        """Take memory for count blocks; those beyond it are not pinned, which works, slower."""
        self.layout = layout
        self._free = deque(torch.empty(count, layout.size, dtype=torch.uint8, pin_memory=pinned)
                           .unbind(0))

    def pack(self, tensors: Tensors) -> Block:
        """Return a block with copies of tensors; raise ValueError if they do not fit it."""
        places = self.layout.places
        if tensors.keys() != places.keys():
            raise ValueError(f'there are {sorted(tensors)}, there must be {sorted(places)}')
        for name, tensor in tensors.items():
            place = places[name]
            if (tensor.shape, tensor.dtype) != (place.shape, place.dtype):
                raise ValueError(f'{name} is {tensor.dtype} {list(tensor.shape)}, must be '
                                 f'{place.dtype} {list(place.shape)}')
        try:
            block = Block(self._free.popleft(), self._free)
        except IndexError:
            block = Block(torch.empty(self.layout.size, dtype=torch.uint8), None)
        for name, view in self.layout.views(block.memory).items():
            view.copy_(tensors[name])
        return block


def lay_out(tensors: Tensors) -> Layout:
    """Return the layout of blocks for tensors like these."""
    places, size = {}, 0
    for name, tensor in tensors.items():
        places[name] = Place(size, tensor.nbytes, tensor.shape, tensor.dtype)
        size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    return Layout(places, max(size, ALIGNMENT))
