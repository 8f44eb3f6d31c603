# SPDX-License-Identifier: Apache-2.0
"""
Times what passes between one lockstep and the next while requests wait.

python3 benchmarks/pace.py [--architecture pi0] [--device cuda:0] [--max-batch 2] [--seconds 20]
    [--json FILE]

Runs the whole engine, its queue never empty: another thread submits a new request of a robot, with
pictures of its own, for each that is answered. Prints p50, p99 and the longest, ms, of

  gap       from the end of both stages to the first kernel of the next VLM stage
  host gap  of it until the host has begun to enqueue that stage
  inputs    from the start of a VLM stage to its first kernel, as the device sees it
  launch    what the host takes to enqueue both stages
  lockstep  from first kernel to first kernel

Device times are those of events; on a CPU, whose stages are threads, all are the host's. The
prediction of late requests plays no part: deadlines are far away. Needs no ROS.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
import json
import logging
from math import inf
import os
from pathlib import Path
from queue import SimpleQueue
from statistics import quantiles
import sys
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np

from robion_ros.config import CameraConfig, ModelConfig, ServerConfig
from robion_ros.core import ActionChunk, Observation, Outcome, Request
from robion_ros.engine.cuda_calls import new_event
from robion_ros.engine.device import Device, open_device, Pending, Stage
from robion_ros.engine.engine import make_engine
from robion_ros.engine.graphs import Graph
from robion_ros.models.registry import load

CAMERAS, SIZE = ('base', 'left', 'right'), 224
JOINTS = tuple(f'joint_{index}' for index in range(1, 8))
WAITING = 4
"""Batches that wait."""
WARM_UPS = 50
"""Locksteps that do not count."""

Mark = Any
"""A moment: an event of a GPU, or s of perf_counter()."""


@dataclass
class Run:
    """A stage's run: when it was launched, on the host, and when it was where, on the device."""

    stage: str
    launched: float
    enqueued: float = 0.0
    start: Mark = None
    first: Mark = None
    """Before its first kernel."""
    end: Mark = None


@dataclass
class Watch:
    """Stages of a device that write down what they run."""

    gpu: bool
    runs: list[Run] = field(default_factory=list)

    def mark(self) -> Mark:
        """Return this moment of the current stream, or thread."""
        if not self.gpu:
            return perf_counter()
        event = new_event()
        event.record()
        return event

    def between(self, start: Mark, end: Mark) -> float:
        """Return the time between two moments, ms."""
        return float(start.elapsed_time(end)) if self.gpu else (end - start) * 1e3

    def on_replay(self) -> None:
        """Hear that the first kernel of the run that is enqueued comes now."""
        if self.runs and self.runs[-1].first is None:
            self.runs[-1].first = self.mark()


@dataclass(frozen=True)
class WatchedStage:
    """A stage that is watched."""

    name: str
    stage: Stage
    watch: Watch

    def launch(self, run: Callable[[], Any], after: Sequence[Pending[Any]] = ()) -> Pending[Any]:
        """Launch as the stage does."""
        entry = Run(self.name, perf_counter())
        self.watch.runs.append(entry)

        def watched() -> Any:
            entry.start = self.watch.mark()
            value = run()
            entry.end = self.watch.mark()
            return value
        pending = self.stage.launch(watched, after)
        entry.enqueued = perf_counter()
        return pending

    def close(self) -> None:
        """Close the stage."""
        self.stage.close()


class WatchedDevice:
    """A device whose stages are watched."""

    def __init__(self, device: Device, watch: Watch) -> None:
        self.name, self.prepare, self.profile = device.name, device.prepare, device.profile
        self.lead, self.machine = device.lead, device.machine
        self.memory, self.taken = device.memory, device.taken
        self._device, self._watch = device, watch

    def stage(self, name: str) -> WatchedStage:
        """Open a stage."""
        return WatchedStage(name, self._device.stage(name), self._watch)


def serve(device: Device, architecture: str, max_batch: int, seconds: float,
          counted: Callable[[], None]) -> int:
    """Keep an engine busy; call counted when it is ready; return how many chunks it gave."""
    config = ModelConfig(architecture, dict.fromkeys(CAMERAS, CameraConfig()), JOINTS, rate=2.0,
                         slo=60.0, capacity=1, seed=1)
    answered: SimpleQueue[Outcome | None] = SimpleQueue()
    engine = make_engine({'model': load(config, device.name)}, device,
                         ServerConfig(('model',), device.name, max_batch), answered.put)
    robots = [f'robot_{index}' for index in range(WAITING * max_batch)]
    engine.assign(1, dict.fromkeys(robots, 'model'))
    pictures = np.random.default_rng(1).integers(0, 256, (64, SIZE, SIZE, 3), np.uint8)
    chunks = 0

    def ask(robot: str, number: int) -> None:
        chosen = tuple(pictures[(number * len(CAMERAS) + each) % len(pictures)]
                       for each in range(len(CAMERAS)))
        observation = Observation(chosen, np.full(len(JOINTS), number % 7, np.float32), 'go', 0)
        engine.submit(Request(robot, number, 'model', observation, 0.0, inf))

    def feed() -> None:
        nonlocal chunks
        while outcome := answered.get():
            if not isinstance(outcome, ActionChunk):
                raise SystemExit(f'no chunk: {outcome}')
            chunks += 1
            ask(outcome.request.robot, outcome.request.number + 1)
    counted()
    feeder = Thread(target=feed, daemon=True)
    feeder.start()
    for robot in robots:
        ask(robot, 1)
    sleep(seconds)
    answered.put(None)
    feeder.join()
    engine.stop()
    return chunks


def evaluate(watch: Watch) -> dict[str, list[float]]:
    """Return the times of all locksteps in which both stages ran, ms."""
    found: dict[str, list[float]] = {name: [] for name in ('gap', 'host gap', 'inputs', 'launch',
                                                           'lockstep')}
    runs = watch.runs
    whole = [(runs[index], runs[index + 1]) for index in range(len(runs) - 1)
             if (runs[index].stage, runs[index + 1].stage) == ('vlm', 'adit')][WARM_UPS:]
    for (vlm, adit), (following, beside) in pairwise(whole):
        first = [run.first or run.start for run in (vlm, following)]
        gaps = [watch.between(run.end, first[1]) for run in (vlm, adit)]
        found['gap'].append(min(gaps))
        found['host gap'].append(min(watch.between(run.end, following.start)
                                     for run in (vlm, adit)))
        found['inputs'].append(watch.between(following.start, first[1]))
        found['launch'].append((beside.enqueued - following.launched) * 1e3)
        found['lockstep'].append(watch.between(first[0], first[1]))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--architecture', default='pi0')
    parser.add_argument('--device', default='cuda:0')
    parser.add_argument('--max-batch', type=int, default=2)
    parser.add_argument('--seconds', type=float, default=20.0)
    parser.add_argument('--json', type=Path, metavar='FILE')
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr)
    sys.setswitchinterval(0.0005)  # As in a server.
    watch = Watch(arguments.device != 'cpu')
    replay = Graph.replay

    def watched(graph: Graph) -> None:
        watch.on_replay()
        replay(graph)
    with TemporaryDirectory() as folder:
        os.environ['XDG_CACHE_HOME'] = folder
        device = WatchedDevice(open_device(arguments.device), watch)
        Graph.replay = watched  # type: ignore[assignment,method-assign]
        chunks = serve(device, arguments.architecture, arguments.max_batch, arguments.seconds,
                       watch.runs.clear)
    found = evaluate(watch)
    if len(found['gap']) < 100:
        raise SystemExit(f'only {len(found["gap"])} locksteps: take more --seconds')
    result: dict[str, Any] = {'architecture': arguments.architecture, 'chunks': chunks,
                              'max_batch': arguments.max_batch, 'locksteps': len(found['gap'])}
    print(f'{chunks} chunks, {len(found["gap"])} locksteps; ms:')
    for name, values in found.items():
        parts = quantiles(values, n=100)
        result[name] = {'p50': parts[49], 'p99': parts[98], 'max': max(values)}
        print(f'{name:9} p50 {parts[49]:7.3f}  p99 {parts[98]:7.3f}  max {max(values):7.3f}')
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + '\n')


if __name__ == '__main__':
    main()
