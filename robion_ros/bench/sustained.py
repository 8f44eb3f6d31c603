# SPDX-License-Identifier: Apache-2.0
"""
The capacity of a model, measured in short: before a server's first robots, or by robion capacity.

The traffic, the search and what counts as a miss are those of robion bench. Knows neither where
capacities are kept nor who asks.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil, log2
from pathlib import Path
from time import monotonic

from robion_ros import engine, models
from robion_ros.bench import capacity, drive, settings, trial
from robion_ros.bench.capacity import search
from robion_ros.bench.engines import Engines, make_source
from robion_ros.bench.modes import ModeOptions
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.serving import Open
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.bench.trial import measure, Row
from robion_ros.config import ServerConfig
from robion_ros.engine.capacities import Capacity, CapacityFile, scale
from robion_ros.engine.device import Device
from robion_ros.engine.machine_file import cache_folder
from robion_ros.engine.profile import code_version, Load, Progress

FIRST = 4
"""The search begins with so many robots where no times of locksteps are known."""
SHARE = 0.75
"""Otherwise with this part of what full batches one after the other would serve."""
SHORT = 3
"""Epochs, where the paper has five."""
SECONDS = 4.0
"""Of an epoch that are counted, or four requests of every robot, whichever is longer."""
CLEAR = 0.5
"""While the search doubles, one epoch decides where p99 is below this part of the deadline."""
TOLERANCE = 0.03
"""Part of a capacity that may be given away."""
LEAST_RATE = 0.5
"""Slower robots are measured at this rate, Hz, and their number is scaled."""
PICTURE = 224
"""Rows and columns of what the made-up cameras see."""
CODE = (*(Path(str(package.__file__)).parent for package in (models, engine)),
        *(Path(str(module.__file__)) for module in (capacity, drive, settings, trial)),
        Path(__file__))
"""What a change of which may change capacities."""


def capacity_file(device: Device) -> CapacityFile:
    """Return the file of a device's kind, and of the programs that serve and measure."""
    return CapacityFile(cache_folder('capacities'),
                        {**device.machine, 'code': code_version(*CODE)})


def measure_capacity(prepared: Prepared, server: ServerConfig, model: str,
                     check: Callable[[], None], report: Progress,
                     epochs: int = SHORT, seconds: float = SECONDS) -> Capacity:
    """
    Measure how many robots of a model a server like this sustains, on prepared models.

    check is called before each request, and what it raises ends all. report hears the part that
    is done and how long the rest will take, which is a guess.
    """
    config = prepared.configs[model]
    rate = max(config.rate, LEAST_RATE)
    traffic = Traffic(rate, epochs, max(seconds, 4 / rate))
    source = make_source(prepared.models[model], PICTURE, PICTURE, traffic.seed)
    engines = Engines(prepared, {model: source}, server.late, ModeOptions(), check)
    found = find_capacity(partial(engines.serve, server.engine, server.policy),
                          {model: config.slo}, traffic, guess(prepared, model, rate), report)
    return found if rate == config.rate else scale(found, rate, config.rate)


def find_capacity(open_serving: Open, slos: Mapping[str, float], traffic: Traffic, first: int,
                  report: Progress) -> Capacity:
    """Find the most robots that something sustains; see measure_capacity."""
    rows: dict[int, Row] = {}
    begun = monotonic()

    def passes(count: int) -> bool:
        left = float(steps_left(rows, count))
        done = float(len(rows))

        def on_epoch(text: str) -> None:
            nonlocal done, left
            done, left = done + 1 / traffic.epochs, left - 1 / traffic.epochs
            report(done / (done + left), (monotonic() - begun) / done * left)

        def look(epochs: int) -> Row:
            return measure(serving, slos, count, replace(traffic, epochs=epochs), early=True,
                           on_epoch=on_epoch)
        doubling = all(row['passes'] for row in rows.values())
        row = look(1) if doubling else {'passes': False}
        rows[count] = row if is_clear(row, slos) else look(traffic.epochs)
        return bool(rows[count]['passes'])
    with open_serving() as serving:
        found = search(passes, first, tolerance=TOLERANCE)
    row = rows[found or min(rows)]
    if not found and row['failed']:  # This says nothing of the device, and is not to be kept.
        raise BenchError(f'{row["failed"]} of {row["sent"]} requests of {row["robots"]} robot '
                         f"failed in the model {', '.join(slos)}: mend it; 'robion check' runs "
                         'one request of a checkpoint')
    p99 = row['latency_ms']['p99']
    return Capacity(found, row['worst'], None if p99 is None else round(p99 / 1e3, 6))


def is_clear(row: Row, slos: Mapping[str, float]) -> bool:
    """Return whether more epochs would say the same."""
    return bool(row['passes'] and row['latency_ms']['p99'] < CLEAR * 1e3 * min(slos.values()))


def steps_left(rows: Mapping[int, Row], tried: int) -> int:
    """Return how many counts a search will try from tried on, if the next doubling fails."""
    passed = max((count for count, row in rows.items() if row['passes']), default=0)
    failed = [count for count, row in rows.items() if not row['passes']]
    if failed:
        return max(1, ceil(log2((min(failed) - passed) / max(1, TOLERANCE * passed))))
    return 2 + ceil(log2(tried))


def guess(prepared: Prepared, model: str, rate: float) -> int:
    """Return with how many robots to begin."""
    load = Load(model, prepared.max_batch)
    seconds = prepared.times.get((load, load))
    return max(1, int(SHARE * load.batch / seconds / rate)) if seconds else FIRST
