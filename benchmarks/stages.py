# SPDX-License-Identifier: Apache-2.0
"""
Times the stages of a model with random weights on one device, alone and side by side.

python3 benchmarks/stages.py [--architecture pi0] [--device cuda:0] [--max-batch 2] [--json FILE]

Prints, for each batch size, a tick of the lockstep and one of the monolithic engine, on the same
graphs, and the times of their stages: side by side in the lockstep, alone in the other. Medians,
ms. Caps come from a profile that is measured anew. Needs no ROS.
"""

import argparse
from collections.abc import Iterator, Mapping
import json
import logging
import os
from pathlib import Path
from statistics import median, quantiles
import sys
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter
from typing import Any

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import ActionChunk, Outcome
from robion_ros.engine.batch import Batch, batch_sizes
from robion_ros.engine.device import Device, open_device
from robion_ros.engine.pipelines import PIPELINES
from robion_ros.engine.warm_up import example
from robion_ros.models.protocol import Model
from robion_ros.models.registry import load

WARM_UPS, TICKS = 5, 60
JOINTS = tuple(f'joint_{index}' for index in range(1, 8))


def time_pipeline(kind: str, device: Device, model: Model, size: int) -> dict[str, float]:
    """Run full ticks of one batch size; return wall and stage times, ms."""
    pipeline = PIPELINES[kind]({'model': model}, device)
    ticket, walls, outcomes = example('model', model), [], list[Outcome]()
    in_flight = None
    for _ in range(WARM_UPS + TICKS):
        start = perf_counter()
        in_flight = pipeline.tick(Batch('model', (ticket,) * size, monotonic()), in_flight,
                                  outcomes.append)
        walls.append((perf_counter() - start) * 1e3)
    pipeline.close()
    chunks = [outcome for outcome in outcomes if isinstance(outcome, ActionChunk)]
    if len(chunks) < size * TICKS:
        raise SystemExit(f'{kind}: only {len(chunks)} chunks: {outcomes[-1]}')
    walls = walls[WARM_UPS:]
    return {'wall p50': median(walls), 'wall p99': quantiles(walls, n=100)[98],
            'vlm': median(chunk.timings.vlm for chunk in chunks) * 1e3,
            'adit': median(chunk.timings.adit for chunk in chunks) * 1e3}


def measure(architecture: str, name: str, max_batch: int) -> Iterator[Mapping[str, Any]]:
    """Load a model for three cameras and seven joints; yield a row of each pipeline and size."""
    config = ModelConfig(architecture, dict.fromkeys(('base', 'left', 'right'), CameraConfig()),
                         JOINTS, rate=2.0, slo=0.156, capacity=1, seed=1)
    model = load(config, name)
    device = open_device(name)
    ready = device.prepare({'model': model}, max_batch, beside=True).models['model']
    for size in reversed(batch_sizes(max_batch)):
        for kind in PIPELINES:
            yield {'pipeline': kind, 'batch': size, **time_pipeline(kind, device, ready, size)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--architecture', default='pi0')
    parser.add_argument('--device', default='cuda:0')
    parser.add_argument('--max-batch', type=int, default=2)
    parser.add_argument('--json', type=Path, metavar='FILE')
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr)
    rows = []
    with TemporaryDirectory() as folder:
        # The profile of this run alone: a stored one may be of other clocks.
        os.environ['XDG_CACHE_HOME'] = folder
        for row in measure(arguments.architecture, arguments.device, arguments.max_batch):
            rows.append(row)
            print('  '.join(f'{key} {value:.2f}' if isinstance(value, float) else f'{key} {value}'
                            for key, value in row.items()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
