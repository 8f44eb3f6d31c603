# SPDX-License-Identifier: Apache-2.0
"""
All denoising steps of an action expert, on kernels of their own.

Takes the place of a model's loop over steps and layers on a GPU, and needs Triton. All calls
but the first for a set of sizes only launch on the current stream and can be captured as a
CUDA graph, which inputs, Expert and a Workspace that was given must outlive. No kernel waits for
another that may not have a multiprocessor, so any number of them is enough. Knows neither
observations nor prefixes.
"""

import math

import torch
from torch import Tensor

from robion_ros.models.kernels.launcher import Launcher, Workspace
from robion_ros.models.kernels.tiles import for_batch, Tiles
from robion_ros.models.kernels.weights import Expert
from robion_ros.models.rotary import Rotary

ALIGNMENT = 1024
"""Of a buffer, bytes."""


def workspace(expert: Expert, batch: int, tokens: int, keys: int,
              tiles: Tiles | None = None) -> Workspace:
    """Make the buffers for so many tokens of each request, which see so many keys before them."""
    tiles, rows = tiles or for_batch(batch), batch * tokens
    check(expert, tiles)
    span = tiles.attention
    splits = span.splits(keys, tokens)
    parts = max(tile.parts for tile in (tiles.mix, tiles.output, tiles.down))
    half, full = torch.bfloat16, torch.float32
    buffers = {
        'actions': (full, (batch, tokens, expert.ends.enter.shape[1])),
        'x': (full, (rows, expert.width)),
        'y': (half, (rows, expert.width)),
        'qkv': (half, (batch, expert.heads + 2, tokens, expert.size)),
        'heads': (half, (rows, expert.heads * expert.size)),
        'hidden': (half, (rows, expert.hidden)),
        'weight': (full, (splits, batch, expert.heads * tokens)),
        'found': (half, (splits, batch, expert.heads * tokens, expert.size)),
        'parts': (full, (parts, rows, expert.width)),
    }
    # One block of memory, so that they share as few pages as can be: times varied by a tenth
    # with where separate ones happened to lie.
    sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in buffers.values()]
    padded = [math.ceil(size / ALIGNMENT) * ALIGNMENT for size in sizes]
    memory = torch.empty(sum(padded), dtype=torch.uint8, device=expert.ends.enter.device)
    spaces = zip(torch.split(memory, padded), sizes, buffers.items(), strict=True)
    return Workspace(**{name: room[:size].view(dtype).view(shape)
                        for room, size, (name, (dtype, shape)) in spaces})


def denoise(expert: Expert, noise: Tensor, cache: Tensor, valid: Tensor, turn: Rotary,
            first: Tensor | None = None, space: Workspace | None = None,
            tiles: Tiles | None = None, overlap: bool | None = None,
            hopper: bool | None = None) -> Tensor:
    """
    Turn noise, fp32 [B, T, A], into actions; they are in space.actions, if space is given.

    cache is bf16 [B, layers, 2, 1, K, D], the keys and values before the actions, and valid,
    bool [B, K], says which of them exist; first, fp32 [B, W], is a token between those and the
    actions which does not see the actions, and turn the rotation of it and the actions. space
    must have been made for the same sizes and tiles. overlap lets a kernel start while the one
    before it ends, and hopper takes the attention made for Hopper; the defaults are what the GPU
    can.
    """
    batch, horizon = noise.shape[:2]
    tokens = horizon + (first is not None)
    space = space or workspace(expert, batch, tokens, cache.shape[4], tiles)
    launcher = launch(expert, cache, valid, turn, first, space, tiles, overlap, hopper)
    actions = space.actions[:, tokens - horizon:]
    actions.copy_(noise)
    steps = torch.arange(expert.steps, dtype=torch.int32, device=cache.device)
    for step in steps[:, None].expand(-1, batch).contiguous():
        launcher.step(step, cache)
    return actions


def launch(expert: Expert, cache: Tensor, valid: Tensor, turn: Rotary, first: Tensor | None,
           space: Workspace, tiles: Tiles | None = None, overlap: bool | None = None,
           hopper: bool | None = None) -> Launcher:
    """
    Return what runs single steps on space.actions; arguments are those of denoise.

    Raises ValueError for a cache with gaps between keys, or a space made for other sizes.
    """
    if cache.stride()[-2:] != (expert.size, 1):
        raise ValueError(f'the cache has strides {cache.stride()}, its keys must lie one behind '
                         'the other: make it contiguous')
    tiles = tiles or for_batch(len(valid))
    splits = tiles.attention.splits(cache.shape[4], turn[0].shape[2])
    if len(space.weight) != splits:
        raise ValueError(f'the workspace has room for {len(space.weight)} splits of the keys, '
                         f'these are {splits}: make one for these sizes and tiles')
    if overlap is None or hopper is None:
        major, _ = torch.cuda.get_device_capability(cache.device)
        overlap = major >= 9 if overlap is None else overlap
        hopper = major == 9 if hopper is None else hopper
    return Launcher(expert, tiles, space, valid, turn, first, overlap, hopper)


def check(expert: Expert, tiles: Tiles) -> None:
    """Raise ValueError if the blocks do not divide the work of an expert."""
    for name, tile, columns, depth in (
            ('qkv', tiles.qkv, (expert.heads + 2) * expert.size, expert.width),
            ('output', tiles.output, expert.width, expert.heads * expert.size),
            ('gate_up', tiles.gate_up, 2 * expert.hidden, expert.width),
            ('down', tiles.down, expert.width, expert.hidden),
            ('mix', tiles.mix, expert.width, expert.width)):
        if columns % tile.columns or depth % tile.depth or depth < tile.parts * tile.depth:
            raise ValueError(f'the weights of {name}, {columns} by {depth}, do not divide into '
                             f'blocks of {tile.columns} by {tile.depth}, in {tile.parts} parts: '
                             'run the layers without kernels')
    if expert.size % tiles.qkv.columns:
        raise ValueError(f'heads of {expert.size} do not divide into blocks of '
                         f'{tiles.qkv.columns} columns: run the layers without kernels')
