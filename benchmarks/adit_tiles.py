# SPDX-License-Identifier: Apache-2.0
"""
Looks for the fastest tiles of the action expert's kernels on this GPU.

python3 benchmarks/adit_tiles.py [--batches 1 2 4] [--rounds 2] [--fields attention qkv ...]
    [--sms 36] [--workers 8]

Goes from kernel to kernel, times a whole denoising step with each candidate for that kernel,
and keeps the fastest; prints what robion_ros/models/kernels/tiles.py may hold. With --sms the
kernels have so many multiprocessors, as beside a VLM stage that has the others. Most of the time
is compilation, which the workers share: with eight of them, three minutes a batch and round.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from itertools import product
import math
from multiprocessing import get_context
from typing import Any

from adit_kernels import capture, Inputs, make_inputs, median_time, parse
import torch

from robion_ros.engine.partition import open_partitions
from robion_ros.models import layers
from robion_ros.models.kernels.tiles import for_batch, Span, Tile, Tiles
from robion_ros.models.kernels.weights import Expert
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import CONFIGS
from robion_ros.models.pi0_kernels import make_expert

SHARED_MEMORY = 225_000
"""Bytes that a block may have."""
MOST_KEYS = 1024
"""Of a request."""


def make_model(architecture: str) -> Pi0:
    """Make a model with an expert of full size, and hardly anything before it."""
    config = replace(CONFIGS[architecture], vocabulary=512, vision_width=48, vision_hidden=96,
                     vision_heads=3, vision_layers=1, width=256, hidden=256)
    with torch.device('meta'):
        network = Pi0Network(config).requires_grad_(False).to_layers_dtype(torch.bfloat16)
    layers.randomise(network.to_empty(device='cuda'), 1, torch.device('cuda'))
    return Pi0(config, network)


def tiles_of_product(columns: int, depth: int, in_parts: bool, rows: int,
                     sms: int) -> Iterator[Tile]:
    """Yield blocks of a product of rows with weights [columns, depth], for so many SMs or all."""
    whole = torch.cuda.get_device_properties('cuda').multi_processor_count
    parts_tried = ((1, 2, 3, 4, 5, 6, 7) if sms else (2, 4, 8)) if in_parts else (1,)
    for row, column, step, parts, warps in product(
            (64, 128, 256), (64, 128, 256) if sms else (32, 64, 128, 256),
            (64, 128) if sms else (64, 128, 256), parts_tried, (4, 8)):
        most = min(SHARED_MEMORY // (2 * step * (row + column)), depth // parts // step)
        blocks = math.ceil(rows / row) * (columns // column) * parts
        if (row >= 2 * rows or not 512 * warps <= row * column <= 4096 * warps
                or not (sms or whole / 2 <= blocks <= 2 * whole)
                # Odd parts are for an even load, and cost adding up.
                or (parts not in (1, 2, 4, 8) and -blocks % sms > sms / 4)):
            continue
        # Half the memory lets a block of the next kernel in beside this one.
        for stages in {most, min(most, SHARED_MEMORY // 2 // (2 * step * (row + column)))}:
            if stages >= 2:
                yield Tile(row, column, step, stages, parts, warps)


def spans(size: int) -> Iterator[Span]:
    """Yield blocks of attention with heads of a size."""
    for rows, keys, tiles in product((64, 128), (32, 64, 128), (1, 2, 3, 4, 5, 6, 7, 10, 14)):
        if 2 * size * (rows + 2 * keys) <= SHARED_MEMORY and keys * (tiles - 1) < MOST_KEYS:
            yield Span(rows, keys, tiles)


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
              stream: torch.cuda.Stream | None, replays: int = 40) -> float:
    """Time one denoising step on a stream, us."""
    return 1e3 * median_time(capture(make_step(expert, given, tiles), stream), replays, 0.04)


def make_step(expert: Expert, given: Inputs, tiles: Tiles) -> Callable[[], None]:
    """Return what launches one denoising step."""
    from robion_ros.models.kernels.denoise import launch, workspace  # Needs triton.
    noise, cache, valid, cos, sin, _, first = given
    own = None if expert.norms.adaptive else first
    space = workspace(expert, len(noise), cos.shape[2], cache.shape[4], tiles)

    def step() -> None:
        space.actions[:, -noise.shape[1]:].copy_(noise)
        start = torch.zeros(len(noise), dtype=torch.int32, device='cuda')
        launch(expert, cache, valid, (cos, sin), own, space, tiles).step(start, cache)
    return step


def compile_step(architecture: str, batch: int, tiles: Tiles) -> str:
    """Compile a step in a worker, for all processes; return why it does not fit, if so."""
    from triton.runtime.errors import OutOfResources
    with torch.inference_mode():
        if architecture not in BUILT:
            BUILT[architecture] = make_model(architecture)
        model = BUILT[architecture]
        expert, given = make_expert(model), make_inputs(model, batch, 0)
        try:
            make_step(expert, given, tiles)()
            torch.cuda.synchronize()
        except (ValueError, OutOfResources) as error:
            return str(error)
    return ''


BUILT: dict[str, Pi0] = {}
"""The models of a worker."""


def candidates(expert: Expert, rows: int, field: str, sms: int) -> Sequence[Any]:
    """Return what a field may be."""
    heads = expert.heads * expert.size
    sizes = {'qkv': (heads + 2 * expert.size, expert.width), 'output': (expert.width, heads),
             'gate_up': (2 * expert.hidden, expert.width), 'down': (expert.width, expert.hidden),
             'mix': (expert.width, expert.width)}
    if field == 'attention':
        return tuple(spans(expert.size))
    if field in sizes:
        return tuple(tiles_of_product(*sizes[field], field not in ('qkv', 'gate_up'), rows, sms))
    return 1, 2, 4, 8


def improve(expert: Expert, given: Inputs, tiles: Tiles, field: str,
            stream: torch.cuda.Stream | None, sms: int, workers: Executor,
            architecture: str) -> Tiles:
    """Return tiles with the fastest candidate for one field."""
    batch = len(given.noise)
    rows = batch * given.cos.shape[2]
    tried = [replace(tiles, **{field: candidate})
             for candidate in candidates(expert, rows, field, sms)]
    refused = workers.map(compile_step, [architecture] * len(tried), [batch] * len(tried), tried)
    fitting = [changed for changed, why in zip(tried, list(refused), strict=True) if not why]
    found = [(step_time(expert, given, changed, stream), changed) for changed in (tiles, *fitting)]
    found.sort(key=lambda pair: pair[0])
    print(f'  batch {batch}, {field}: {len(fitting)} of {len(tried)} fit')
    for time, best in found[:3]:
        print(f'    {time:.1f} us with {getattr(best, field)}', flush=True)
    return found[0][1]


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--architecture', default='pi0')
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--rounds', type=int, default=1)
    parser.add_argument('--sms', type=int, default=0, help='multiprocessors; default: all')
    parser.add_argument('--workers', type=int, default=8, help='processes that compile')
    parser.add_argument('--fields', nargs='+', default=list(Tiles.__dataclass_fields__))
    arguments = parse(parser)
    with torch.inference_mode(), ProcessPoolExecutor(
            arguments.workers, get_context('spawn')) as workers:
        model = make_model(arguments.architecture)
        expert, stream = make_expert(model), find_stream(arguments.sms)
        for batch in arguments.batches:
            given = make_inputs(model, batch, 0)
            tiles = for_batch(batch, arguments.sms or None)
            for _ in range(arguments.rounds):
                for field in arguments.fields:
                    tiles = improve(expert, given, tiles, field, stream, arguments.sms,
                                    workers, arguments.architecture)
            print(f'{batch}: {tiles}, {step_time(expert, given, tiles, stream, 200):.1f} us a '
                  'step', flush=True)


if __name__ == '__main__':
    main()
