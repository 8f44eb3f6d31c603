# SPDX-License-Identifier: Apache-2.0
"""
Looks for the fastest tiles of the action expert's kernels on this GPU.

python3 benchmarks/adit_tiles.py [--batches 1 2 4] [--rounds 2] [--fields attention qkv ...]
    [--sms 36]

Goes from kernel to kernel, times a whole denoising step with each candidate for that kernel,
and keeps the fastest; prints what robion_ros/models/kernels/tiles.py may hold. With --sms the
kernels have so many multiprocessors, as beside a VLM stage that has the others. A few minutes a
batch and round, most of them compilation.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from adit_kernels import capture, Inputs, make_inputs, make_model, median_time
import torch
import triton

from robion_ros.engine.partition import open_partitions
from robion_ros.models.kernels.denoise import launch, workspace
from robion_ros.models.kernels.tiles import for_batch, Span, Tile, Tiles
from robion_ros.models.kernels.weights import Expert
from robion_ros.models.pi0_kernels import make_expert

SHARED_MEMORY = 225_000
"""Bytes that a block may have."""


def tiles_of_product(depth: int, in_parts: bool, rows: int) -> Iterator[Tile]:
    """Yield blocks of a product of so many rows with weights of a depth."""
    for row, column, step, parts, warps in product(
            (64, 128, 256), (32, 64, 128), (64, 128, 256), (4, 8) if in_parts else (1,), (4, 8)):
        most = min(SHARED_MEMORY // (2 * step * (row + column)), depth // parts // step)
        if row >= 2 * rows or not 512 * warps <= row * column <= 4096 * warps:
            continue
        # Half the memory lets a block of the next kernel in beside this one.
        for stages in {most, min(most, SHARED_MEMORY // 2 // (2 * step * (row + column)))}:
            if stages >= 2:
                yield Tile(row, column, step, stages, parts, warps)


def spans(size: int) -> Iterator[Span]:
    """Yield blocks of attention with heads of a size."""
    for rows, keys, tiles, stages in product((64, 128), (32, 64, 128), (1, 2, 3, 4), (1, 2, 3)):
        memory = 2 * size * (rows + 2 * keys * min(stages, tiles))
        if stages <= tiles and memory <= SHARED_MEMORY:
            yield from (Span(rows, keys, tiles, stages, warps) for warps in (4, 8)
                        if rows == 64 or warps == 8)


def find_stream(sms: int) -> torch.cuda.Stream | None:
    """Return a stream that has at most so many multiprocessors; None for all of them."""
    if not sms:
        return None
    partitions = open_partitions(0)
    if partitions is None:
        raise SystemExit('this GPU cannot be divided')
    cap = min(cap for cap in partitions.caps if cap >= partitions.sms - sms)
    print(f'{partitions.sms - cap} of {partitions.sms} multiprocessors')
    return partitions.streams(cap).adit


def step_time(expert: Expert, given: Inputs, tiles: Tiles,
              stream: torch.cuda.Stream | None) -> float:
    """Time one denoising step on a stream, us."""
    noise, cache, valid, cos, sin, _, first = given
    own = None if expert.norms.adaptive else first
    space = workspace(expert, len(noise), cos.shape[2], cache.shape[4], tiles)
    space.actions[:, -noise.shape[1]:].copy_(noise)
    run = launch(expert, cache, valid, (cos, sin), own, space, tiles)
    return 1e3 * median_time(capture(lambda: run.step(space.steps[0], cache),
                                     stream))


def improve(expert: Expert, given: Inputs, tiles: Tiles, field: str,
            stream: torch.cuda.Stream | None) -> Tiles:
    """Return tiles with the fastest candidate for one field."""
    rows = given.noise.shape[0] * given.cos.shape[2]
    depths = {'qkv': expert.width, 'output': expert.heads * expert.size,
              'gate_up': expert.width, 'down': expert.hidden, 'mix': expert.width}
    candidates: list[object]
    if field == 'attention':
        candidates = list(spans(expert.size))
    elif field in depths:
        candidates = list(tiles_of_product(depths[field], field not in ('qkv', 'gate_up'), rows))
    else:
        candidates = [1, 2, 4, 8]
    found = [(step_time(expert, given, tiles, stream), tiles)]
    for candidate in candidates:
        changed = replace(tiles, **{field: candidate})
        try:
            found.append((step_time(expert, given, changed, stream), changed))
        except (ValueError, triton.runtime.errors.OutOfResources) as error:
            print(f'    {candidate} does not fit: {error}')
    found.sort(key=lambda pair: pair[0])
    for time, best in found[:3]:
        print(f'  batch {len(given.noise)}: {time:.1f} us with {field}={getattr(best, field)}',
              flush=True)
    return found[0][1]


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--architecture', default='pi0')
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--sms', type=int, default=0, help='multiprocessors; default: all')
    parser.add_argument('--fields', nargs='+', default=list(Tiles.__dataclass_fields__))
    arguments = parser.parse_args()
    with torch.inference_mode():
        model = make_model(arguments.architecture)
        expert, stream = make_expert(model), find_stream(arguments.sms)
        for batch in arguments.batches:
            given, tiles = make_inputs(model, batch, 0), for_batch(batch)
            for _ in range(arguments.rounds):
                for field in arguments.fields:
                    tiles = improve(expert, given, tiles, field, stream)
            print(f'{batch}: {tiles}, {step_time(expert, given, tiles, stream):.1f} us a step',
                  flush=True)


if __name__ == '__main__':
    main()
