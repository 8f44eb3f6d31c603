# SPDX-License-Identifier: Apache-2.0
"""
Times the denoising steps of a pi0-sized action expert with random weights on one GPU.

python3 benchmarks/adit_kernels.py [--compile] [--batches 1 2 4] [--json FILE]

Compares the layers as PyTorch runs them, those layers through torch.compile (40 s and more),
and the kernels, each in one CUDA graph, with the same weights and inputs. The limit is the
time in which the GPU reads the weights once a step, at the bandwidth of a copy measured in the
same run. Knows no checkpoints.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
import json
import math
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn, Tensor
import torch.nn.functional as F
from torch.profiler import profile, ProfilerActivity

from robion_ros.models import layers
from robion_ros.models.kernels.denoise import denoise, workspace
from robion_ros.models.kernels.weights import Ends, Expert, Norms

WIDTH, HIDDEN, HEADS, SIZE, LAYERS = 1024, 4096, 8, 256, 18
ACTIONS, HORIZON, KEYS, STEPS = 32, 50, 817, 10
INPUTS, REPLAYS = 4, 100
WEIGHTS = LAYERS * (WIDTH * (HEADS + 2) * SIZE + HEADS * SIZE * WIDTH + 3 * WIDTH * HIDDEN)


class Inputs(NamedTuple):
    """What a batch of chunks is made of."""

    noise: Tensor
    cache: Tensor
    valid: Tensor
    cos: Tensor
    sin: Tensor


def make_inputs(batch: int, seed: int) -> Inputs:
    """Draw a batch of which every chunk has its own number of keys."""
    generator = torch.Generator('cuda').manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device='cuda', generator=generator)

    valid = torch.rand(batch, KEYS, device='cuda', generator=generator) < 0.95
    places = layers.positions(F.pad(valid, (0, HORIZON), value=True))[:, -HORIZON:]
    return Inputs(normal(batch, HORIZON, ACTIONS),
                  normal(batch, LAYERS, 2, 1, KEYS, SIZE).bfloat16(), valid,
                  *layers.rotary(places, SIZE))


def make_expert() -> tuple[Expert, nn.RMSNorm]:
    """Build an expert of random weights; also return its last norm."""
    torch.manual_seed(0)
    with torch.device('cuda'):
        stack = []
        for _ in range(LAYERS):
            layer = layers.DecoderLayer(WIDTH, HIDDEN, HEADS, 1, SIZE).requires_grad_(False)
            for weight in layer.parameters():
                if weight.ndim == 2:
                    weight.data.uniform_(-1, 1).mul_(math.sqrt(3 / weight.shape[1]))
            stack.append(layer.bfloat16())
        enter, mix, leave = (nn.Linear(*shape).requires_grad_(False) for shape in (
            (ACTIONS, WIDTH), (WIDTH, WIDTH), (WIDTH, ACTIONS)))
        last = nn.RMSNorm(WIDTH, eps=1e-6).requires_grad_(False)
        ends = Ends.mixed(enter, torch.randn(WIDTH, WIDTH) / math.sqrt(WIDTH),
                          torch.randn(STEPS, WIDTH), mix, leave)
    return Expert(tuple(stack), Norms.plain(stack, last), ends, STEPS), last.bfloat16()


def stock(expert: Expert, last: nn.RMSNorm, given: Inputs, run: list[Callable[..., Tensor]],
          actions: Tensor) -> None:
    """Denoise as models do without the kernels."""
    ends = expert.ends
    actions.copy_(given.noise)
    mask = layers.attention_mask(F.pad(given.valid, (0, HORIZON), value=True), torch.bfloat16)
    past = given.cache.unbind(1)
    for step in range(STEPS):
        x = F.silu(F.linear(actions, ends.enter, ends.enter_bias[step]))
        x = F.linear(x.bfloat16(), ends.mix, ends.mix_bias.bfloat16())
        for layer, before in zip(run, past, strict=True):
            x = layer(x, (given.cos, given.sin), mask, before)[0]
        velocity = F.linear(last(x).float(), ends.leave, ends.leave_bias)
        actions.sub_(velocity, alpha=1 / STEPS)


def capture(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Warm a function up and capture it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def median_time(graph: torch.cuda.CUDAGraph, replays: int = 100, warm: float = 0.1) -> float:
    """
    Return the median time of a replay, ms, with the clocks up.

    An idle GPU lowers them, and a few replays do not bring them back.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    for _ in range(math.ceil(1e3 * warm / start.elapsed_time(end))):
        graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    for mark in marks:
        mark.record()
        graph.replay()
    torch.cuda.synchronize()
    return median(first.elapsed_time(second) for first, second in pairwise(marks))


def replay_times(graph: torch.cuda.CUDAGraph, static: Inputs, sets: list[Inputs]
                 ) -> Iterator[float]:
    """Yield the time of each replay, ms; inputs change from one to the next."""
    median_time(graph, replays=10)
    for index in range(REPLAYS):
        for old, new in zip(static, sets[index % len(sets)], strict=True):
            old.copy_(new)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        yield start.elapsed_time(end)


def kernel_times(run: Callable[[], object]) -> dict[str, float]:
    """Return the mean time of each kernel alone, us, without overlap, and how often it runs."""
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        run()
        torch.cuda.synchronize()
    total, count = Counter[str](), Counter[str]()
    for event in traced.events():
        if event.name.endswith('_kernel'):
            total[event.name] += event.device_time
            count[event.name] += 1
    return {f'{name} x {count[name]}': total[name] / count[name] for name in total}


def copy_bandwidth() -> float:
    """Return what a large copy reads and writes, bytes/s."""
    source = torch.randn(2**28, device='cuda')
    target = torch.empty_like(source)
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * source.nbytes / median(times) * 1e3


def measure(batch: int, expert: Expert, last: nn.RMSNorm, compiled: bool, limit: float
            ) -> dict[str, Any]:
    """Time one batch; return a row of the report."""
    sets = [make_inputs(batch, seed) for seed in range(INPUTS)]
    static = Inputs(*(value.clone() for value in sets[0]))
    space, actions = workspace(expert, batch, HORIZON, KEYS), torch.empty_like(static.noise)
    noise, cache, valid, *turn = static

    def ours(overlap: bool = True) -> None:
        denoise(expert, noise, cache, valid, (turn[0], turn[1]), space, overlap=overlap)

    ways: dict[str, Callable[[], None]] = {
        'kernels': ours, 'kernels one by one': lambda: ours(False),
        'stock': lambda: stock(expert, last, static, list(expert.layers), actions)}
    if compiled:
        fast = [torch.compile(layer, dynamic=False) for layer in expert.layers]
        ways['compiled'] = lambda: stock(expert, last, static, fast, actions)
    row: dict[str, Any] = {'batch': batch, 'limit': limit}
    for name, run in ways.items():
        row[name] = median(replay_times(capture(run), static, sets))
        print(f'  batch {batch}, {name}: {row[name]:.2f} ms', flush=True)
    row['difference'] = ((space.actions - actions).norm() / actions.norm()).item()
    row['of the limit'] = limit / row['kernels']
    row['us a kernel'] = kernel_times(lambda: ours(False))
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--compile', action='store_true', help='also time torch.compile')
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--json', type=Path, help='write the rows here')
    arguments = parser.parse_args()
    bandwidth = copy_bandwidth()
    limit = STEPS * 2 * WEIGHTS / bandwidth * 1e3
    print(f'{torch.cuda.get_device_name()}, torch {torch.__version__}, copy '
          f'{bandwidth / 1e12:.2f} TB/s, {STEPS} steps, weights read in {limit:.2f} ms')
    with torch.inference_mode():
        expert, last = make_expert()
        rows = [measure(batch, expert, last, arguments.compile, limit)
                for batch in arguments.batches]
    for row in rows:
        print(', '.join(f'{name} {value:.3g}' for name, value in row.items()
                        if not isinstance(value, dict)))
        print('   ', ', '.join(f'{name} {value:.2f} us'
                               for name, value in row['us a kernel'].items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
