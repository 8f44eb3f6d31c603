# SPDX-License-Identifier: Apache-2.0
"""
Times the denoising steps of pi0 with random weights on one GPU.

python3 benchmarks/adit_kernels.py [--architecture pi0] [--batches 1 2 4] [--json FILE]

Compares the layers through torch.compile and the kernels, each in one CUDA graph, with the same
weights and inputs. The limit is the time in which the GPU reads the weights once a step, at the
bandwidth of a copy measured in the same run. Knows no checkpoints.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
import json
import math
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
import torch.nn.functional as F
from torch.profiler import profile, ProfilerActivity

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.models.pi0_kernels import make_expert
from robion_ros.models.registry import load
from robion_ros.models.rotary import positions, rotary

INPUTS, REPLAYS = 4, 100
JOINTS = tuple(f'joint_{index}' for index in range(1, 8))


class Inputs(NamedTuple):
    """What a batch of chunks is made of."""

    noise: Tensor
    cache: Tensor
    valid: Tensor
    cos: Tensor
    sin: Tensor
    state: Tensor
    first: Tensor


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the arguments; exit with 2 where there is no GPU or no triton."""
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or not find_spec('triton'):
        parser.exit(2, f'{parser.prog}: needs a GPU of NVIDIA, torch for CUDA, and triton\n')
    return arguments


def make_model(architecture: str) -> Any:
    """Load a model of random weights for three cameras and seven joints."""
    cameras = dict.fromkeys(('base', 'left', 'right'), CameraConfig())
    return load(ModelConfig(architecture, cameras, JOINTS, rate=2.0, slo=0.156, capacity=1,
                            seed=1), 'cuda:0')


def make_inputs(model: Any, batch: int, seed: int) -> Inputs:
    """Draw a batch of which every chunk has its own number of keys."""
    c = model.config
    generator = torch.Generator('cuda').manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device='cuda', generator=generator)

    valid = torch.rand(batch, c.prefix_tokens, device='cuda', generator=generator) < 0.95
    own = c.own_tokens
    places = positions(F.pad(valid, (0, own), value=True))[:, -own:]
    state = normal(batch, c.padded_size)
    return Inputs(normal(batch, c.horizon, c.padded_size),
                  normal(batch, c.layers, 2, 1, c.prefix_tokens, c.head_size).bfloat16(), valid,
                  *rotary(places, c.head_size), state,
                  state if c.adaptive else model.network.state_proj(state))


def capture(run: Callable[[], object],
            stream: torch.cuda.Stream | None = None) -> torch.cuda.CUDAGraph:
    """Warm a function up and capture it; it keeps the part of the GPU that stream has."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
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


def measure(model: Any, batch: int, limit: float) -> dict[str, Any]:
    """Time one batch; return a row of the report."""
    from robion_ros.models.kernels.denoise import denoise, workspace  # Needs triton.
    sets = [make_inputs(model, batch, seed) for seed in range(INPUTS)]
    static = Inputs(*(value.clone() for value in sets[0]))
    c, expert = model.config, make_expert(model)
    space = workspace(expert, batch, c.own_tokens, c.prefix_tokens)
    noise, cache, valid, cos, sin, state, first = static
    compiled = torch.empty_like(noise)

    def kernels(overlap: bool = True) -> Tensor:
        return denoise(expert, noise, cache, valid, (cos, sin),
                       None if c.adaptive else first, space, overlap=overlap)

    def layer_by_layer() -> None:
        own = {} if c.adaptive else {'state': state}
        compiled.copy_(model.adit({'cache': cache, 'valid': valid, **own}, noise))

    model.kernels = None
    row: dict[str, Any] = {'batch': batch, 'limit': limit}
    for name, run in {'kernels': kernels, 'kernels one by one': lambda: kernels(False),
                      'compiled layers': layer_by_layer}.items():
        row[name] = median(replay_times(capture(run), static, sets))
        print(f'  batch {batch}, {name}: {row[name]:.2f} ms', flush=True)
    found = space.actions[:, -c.horizon:]
    row['difference'] = ((found - compiled).norm() / compiled.norm()).item()
    row['of the limit'] = limit / row['kernels']
    row['us a kernel'] = kernel_times(lambda: kernels(False))
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--architecture', default='pi0')
    parser.add_argument('--batches', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--json', type=Path, help='write the rows here')
    arguments = parse(parser)
    bandwidth = copy_bandwidth()
    with torch.inference_mode():
        model = make_model(arguments.architecture)
        weights = sum(weight.nbytes for layer in model.network.expert
                      for weight in layer.parameters() if weight.ndim == 2)
        limit = model.config.steps * weights / bandwidth * 1e3
        print(f'{torch.cuda.get_device_name()}, torch {torch.__version__}, copy '
              f'{bandwidth / 1e12:.2f} TB/s, {model.config.steps} steps, weights read in '
              f'{limit:.2f} ms')
        rows = [measure(model, batch, limit) for batch in arguments.batches]
    for row in rows:
        print(', '.join(f'{name} {value:.3g}' for name, value in row.items()
                        if not isinstance(value, dict)))
        print('   ', ', '.join(f'{name} {value:.2f} us'
                               for name, value in row['us a kernel'].items()))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
