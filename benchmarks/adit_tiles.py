# SPDX-License-Identifier: Apache-2.0
"""
Looks for the fastest tiles of the action expert's kernels on this GPU.

python3 benchmarks/adit_tiles.py [--batches 1 2 4] [--rounds 2]

Goes from kernel to kernel, times a whole denoising step with each candidate for that kernel,
and keeps the fastest; prints what robion_ros/models/kernels/tiles.py may hold. A few minutes
a batch and round, most of them compilation.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import adit_kernels as sizes
from adit_kernels import capture, Inputs, make_expert, make_inputs, median_time
import torch
import triton

from robion_ros.models.kernels.denoise import workspace
from robion_ros.models.kernels.launcher import Launcher
from robion_ros.models.kernels.tiles import for_batch, Span, Tile, Tiles
from robion_ros.models.kernels.weights import Expert

SHARED_MEMORY = 225_000
"""Bytes that a block may have."""
DEPTHS = {'qkv': sizes.WIDTH, 'output': sizes.HEADS * sizes.SIZE, 'gate_up': sizes.WIDTH,
          'down': sizes.HIDDEN, 'mix': sizes.WIDTH}


def tiles_of_product(depth: int, in_parts: bool, batch: int) -> Iterator[Tile]:
    """Yield blocks of a product with weights of a depth."""
    rows = [size for size in (64, 128, 256) if size < 2 * batch * sizes.HORIZON]
    for row, column, step, parts, warps in product(
            rows, (32, 64, 128), (64, 128, 256), (4, 8) if in_parts else (1,), (4, 8)):
        stages = min(SHARED_MEMORY // (2 * step * (row + column)), depth // parts // step)
        if stages >= 2 and 512 * warps <= row * column <= 4096 * warps:
            yield Tile(row, column, step, stages, parts, warps)


def spans() -> Iterator[Span]:
    """Yield blocks of attention."""
    for rows, keys, tiles, stages in product((64, 128), (32, 64, 128), (1, 2, 3, 4), (1, 2, 3)):
        memory = 2 * sizes.SIZE * (rows + 2 * keys * min(stages, tiles))
        if stages <= tiles and memory <= SHARED_MEMORY:
            yield from (Span(rows, keys, tiles, stages, warps) for warps in (4, 8)
                        if rows == 64 or warps == 8)


def step_time(expert: Expert, given: Inputs, tiles: Tiles) -> float:
    """Time one denoising step, us."""
    space = workspace(expert, given.noise.shape[0], sizes.HORIZON, sizes.KEYS, tiles)
    space.actions.copy_(given.noise)
    run = Launcher(expert, tiles, space, given.valid, (given.cos, given.sin), overlap=True)

    def step() -> None:
        run.enter(0)
        for index in range(sizes.LAYERS):
            run.layer(0, index, given.cache[:, index])
        run.leave(0)

    return 1e3 * median_time(capture(step))


def improve(expert: Expert, given: Inputs, tiles: Tiles, field: str) -> Tiles:
    """Return tiles with the fastest candidate for one field."""
    batch = given.noise.shape[0]
    candidates: list[object]
    if field == 'attention':
        candidates = list(spans())
    elif field in DEPTHS:
        candidates = list(tiles_of_product(DEPTHS[field], field not in ('qkv', 'gate_up'), batch))
    else:
        candidates = [1, 2, 4, 8]
    found = [(step_time(expert, given, tiles), tiles)]
    for candidate in candidates:
        changed = replace(tiles, **{field: candidate})
        try:
            found.append((step_time(expert, given, changed), changed))
        except triton.runtime.errors.OutOfResources as error:
            print(f'    {candidate} does not fit: {error}')
    found.sort(key=lambda pair: pair[0])
    for time, best in found[:3]:
        print(f'  batch {batch}: {time:.1f} us with {field}={getattr(best, field)}', flush=True)
    return found[0][1]


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--rounds', type=int, default=1)
    arguments = parser.parse_args()
    with torch.inference_mode():
        expert, _ = make_expert()
        for batch in arguments.batches:
            given, tiles = make_inputs(batch, 0), for_batch(batch)
            for _ in range(arguments.rounds):
                for field in vars(tiles):
                    tiles = improve(expert, given, tiles, field)
            print(f'{batch}: {tiles}, {step_time(expert, given, tiles):.1f} us a step', flush=True)


if __name__ == '__main__':
    main()
