# SPDX-License-Identifier: Apache-2.0
"""
All denoising steps of an action expert, on kernels of their own.

Takes the place of a model's loop over steps and layers on a GPU, and needs Triton. All calls
but the first for a set of sizes only launch on the current stream and can be captured as a
CUDA graph, which Workspace, inputs and Expert must outlive. No kernel waits for another that
may not have a multiprocessor, so any number of them is enough. Knows neither observations nor
prefixes.
"""

import math

import torch
from torch import Tensor

from robion_ros.models.kernels.launcher import Launcher, Workspace
from robion_ros.models.kernels.tiles import for_batch, Tiles
from robion_ros.models.kernels.weights import Expert
from robion_ros.models.layers import Rotary

ALIGNMENT = 1024
"""Of a buffer, bytes."""


def workspace(expert: Expert, batch: int, horizon: int, keys: int,
              tiles: Tiles | None = None) -> Workspace:
    """Make the buffers for chunks of a horizon that see so many keys before them."""
    tiles, rows = tiles or for_batch(batch), batch * horizon
    span = tiles.attention
    loads = math.ceil(keys / span.keys) + math.ceil(horizon / span.keys)
    splits = math.ceil(loads / span.tiles)
    parts = max(tile.parts for tile in (tiles.mix, tiles.output, tiles.down))
    half, full = torch.bfloat16, torch.float32
    buffers = {
        'actions': (full, (batch, horizon, expert.ends.enter.shape[1])),
        'x': (full, (rows, expert.width)),
        'y': (half, (rows, expert.width)),
        'qkv': (half, (batch, expert.heads + 2, horizon, expert.size)),
        'heads': (half, (rows, expert.heads * expert.size)),
        'hidden': (half, (rows, expert.hidden)),
        'weight': (full, (splits, batch, expert.heads * horizon)),
        'found': (half, (splits, batch, expert.heads * horizon, expert.size)),
        'parts': (full, (parts, rows, expert.width)),
    }
    # One block of memory, so that they share as few pages as can be: times varied by a tenth
    # with where separate ones happened to lie.
    sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in buffers.values()]
    padded = [math.ceil(size / ALIGNMENT) * ALIGNMENT for size in sizes]
    memory = torch.empty(sum(padded), dtype=torch.uint8, device=expert.ends.enter.device)
    spaces = zip(torch.split(memory, padded), sizes, buffers.items(), strict=True)
    return Workspace(**{name: space[:size].view(dtype).view(shape)
                        for space, size, (name, (dtype, shape)) in spaces})


def denoise(expert: Expert, noise: Tensor, cache: Tensor, valid: Tensor, turn: Rotary,
            space: Workspace | None = None, tiles: Tiles | None = None,
            overlap: bool | None = None) -> Tensor:
    """
    Turn noise, fp32 [B, T, A], into actions; they are space.actions, if space is given.

    cache is bf16 [B, layers, 2, 1, K, D], the keys and values before the actions, and valid,
    bool [B, K], says which of them exist; turn is the rotation of the actions' tokens. space
    must have been made for the same sizes and tiles. overlap lets a kernel start while the one
    before it ends, which is the default where the GPU can.
    """
    batch, horizon = noise.shape[:2]
    tiles = tiles or for_batch(batch)
    if space is None:
        space = workspace(expert, batch, horizon, cache.shape[4], tiles)
    if cache.stride()[-2:] != (expert.size, 1):
        raise ValueError(f'the cache has strides {cache.stride()}, its keys must lie one behind '
                         'the other: make it contiguous')
    if overlap is None:
        overlap = torch.cuda.get_device_capability(noise.device) >= (9, 0)
    space.actions.copy_(noise)
    run = Launcher(expert, tiles, space, valid, turn, overlap)
    for step in range(expert.steps):
        run.enter(step)
        for index in range(len(expert.layers)):
            run.layer(step, index, cache[:, index])
        run.leave(step)
    return space.actions
