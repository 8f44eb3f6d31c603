# SPDX-License-Identifier: Apache-2.0
"""
Compares what `robion simulate` expects of one server with what the real engine reaches.

python3 benchmarks/simulation.py [--model pi0] [--device cuda:0] [--robots 30 45 50 55 60]
    [--modes lockstep monolithic] [--late yield] [--slo MS] [--max-batch 2] [--epochs 3]
    [--seconds 5] [--gap MS] [--pace VLM_MS ADIT_MS] [--json FILE]

Makes a model ready, times its stages and locksteps as `robion bench ablation` does, and serves the
same requests of each number of robots twice: by the engine, in real time, and by the simulated
server. Prints attainment, p50 and p99 of both, and how far the attainments are apart, in points.
Simulated is

  with these times      what passes between two locksteps is --gap (benchmarks/pace.py; default:
                        0.034 ms on a GPU, 0 on a CPU)
  with the measured gap instead it is what the engine's locksteps took longer than these times,
                        on average, with several times the robots that it can serve
  with the profile      on a GPU: nothing but pairs of batches is known

--pace lets the stages of a model on the CPU take so many ms for a request alone (paced.py): real
stages there are as slow as others that share the machine make them. Needs no ROS.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
import json
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, get_args

from paced import pace

from robion_ros import config
from robion_ros.architectures import ARCHITECTURES
from robion_ros.bench.ablation import run_ways
from robion_ros.bench.engines import Engines, make_sources
from robion_ros.bench.machine import describe_machine, format_machine
from robion_ros.bench.modes import ModeOptions
from robion_ros.bench.prepared import make_configs, prepare, Prepared
from robion_ros.bench.serving import Serving
from robion_ros.bench.settings import SLOS, Traffic
from robion_ros.bench.trial import measure
from robion_ros.commands.table import format_table
from robion_ros.config import ServerConfig
from robion_ros.core import Request
from robion_ros.engine.batch import batch_sizes, make_ticket
from robion_ros.engine.profile import Load, Pair
from robion_ros.simulation.serving import open_simulated
from robion_ros.simulation.stage_times import complete, StageTimes, Together
from robion_ros.simulation.times_file import from_ablation

CAMERAS, JOINTS, SIZE = 3, 7, 224
REPEATS = 30
"""Timed locksteps of each kind, and preprocessed requests."""
GPU_GAP = 0.034
"""Between two locksteps on an H200, ms: docs/benchmarks.md."""
OVERLOAD = 3
"""Times the robots that can be served, to find out how long locksteps take."""
TIMES, GAP, PROFILE = 'with these times', 'with the measured gap', 'with the profile'
SLO = 0.1
"""Of a model that the paper has no deadline for, s."""


def main() -> None:
    """Print a table."""
    arguments = parse()
    name = arguments.model
    slo = arguments.slo / 1e3 if arguments.slo else SLOS.get(name, SLO)
    traffic = Traffic(epochs=arguments.epochs, seconds=arguments.seconds)
    prepared = prepare(make_configs({name: name}, {name: slo}, traffic.rate, CAMERAS, JOINTS, 0),
                       arguments.device, arguments.max_batch)
    if arguments.pace:
        prepared = pace(prepared, *(time / 1e3 for time in arguments.pace))
    machine = describe_machine((prepared.device.name,))
    print(format_machine(machine))
    engines = Engines(prepared, make_sources(prepared, SIZE, SIZE, 0), arguments.late,
                      ModeOptions())
    known = find_times(prepared, engines, arguments.gap)
    rows = []
    gaps = {}
    for mode in arguments.modes:
        server = ServerConfig((name,), prepared.device.name, arguments.max_batch,
                              engine=mode, late=arguments.late)
        with engines.serve(mode, 'earliest_slo_first') as real:
            gaps[mode] = measure_gap(real, server, name, slo, known[TIMES])
            times = {**known, GAP: replace(known[TIMES], gap=gaps[mode])}
            for robots in arguments.robots:
                found = {'engine': measure(real, {name: slo}, robots, traffic)}
                for source in times:
                    with open_simulated(server, times[source]) as serving:
                        found[source] = measure(serving, {name: slo}, robots, traffic)
                rows.append({'mode': mode, 'robots': robots, **{
                    source: {key: value for key, value in row.items() if key != 'requests'}
                    for source, row in found.items()}})
                print(f'{mode}, {robots} robots: '
                      f'{", ".join(show(rows[-1], list(times)))}', flush=True)
    header = ['mode', 'robots', 'engine %', 'p50 ms', 'p99 ms']
    for source in times:
        header += [f'{source}: %', 'p50 ms', 'p99 ms', 'points apart']
    print('\n'.join(format_table(header, [[row['mode'], row['robots'], *show(row, list(times))]
                                          for row in rows])))
    print('stages and locksteps, ms: ' + ', '.join(
        f'{what} {1e3 * seconds:.2f}' for what, seconds in listed(known[TIMES], gaps)))
    if arguments.json:
        arguments.json.write_text(json.dumps({
            'machine': machine, 'late': arguments.late, 'slo_ms': slo * 1e3,
            'times_ms': {what: 1e3 * seconds
                         for what, seconds in listed(known[TIMES], gaps)},
            'rows': rows}, indent=1) + '\n')


def parse() -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[1])
    parser.add_argument('--model', choices=tuple(ARCHITECTURES), default='pi0')
    parser.add_argument('--device', default='cuda:0')
    parser.add_argument('--robots', type=int, nargs='+', default=[30, 45, 50, 55, 60])
    parser.add_argument('--modes', nargs='+', choices=get_args(config.EngineKind),
                        default=get_args(config.EngineKind))
    parser.add_argument('--late', choices=get_args(config.LateRule), default='yield')
    parser.add_argument('--slo', type=float, metavar='MS')
    parser.add_argument('--max-batch', type=int, default=2)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=5.0)
    parser.add_argument('--gap', type=float, metavar='MS')
    parser.add_argument('--pace', type=float, nargs=2, metavar=('VLM_MS', 'ADIT_MS'))
    parser.add_argument('--json', type=Path, metavar='FILE')
    arguments = parser.parse_args()
    if arguments.pace and arguments.device != 'cpu':
        parser.error(f'--pace: stages on {arguments.device} cannot be held up: only those on a '
                     'CPU are threads, which sleep')
    return arguments


def find_times(prepared: Prepared, engines: Engines, gap: float | None) -> dict[str, StageTimes]:
    """Time stages, locksteps and preprocessing; on a GPU, return what the profile has, too."""
    architectures = {name: model.architecture for name, model in prepared.configs.items()}
    sizes = batch_sizes(prepared.max_batch)
    timed = replace(from_ablation(list(run_ways(prepared, REPEATS, print))),
                    preprocess=time_preprocessing(prepared, engines),
                    gap=(GPU_GAP if gap is None and prepared.times else gap or 0.0) / 1e3)
    found = {TIMES: complete(timed, architectures, sizes)}
    if prepared.times:
        pairs = {Pair(vlm, adit): Together(seconds, seconds)
                 for (vlm, adit), seconds in prepared.times.items() if adit}
        found[PROFILE] = complete(
            StageTimes({}, {}, pairs, timed.preprocess, timed.gap), architectures, sizes)
    return found


def time_preprocessing(prepared: Prepared, engines: Engines) -> float:
    """Return the median time that a request takes before it can wait, s."""
    seconds = []
    for name, model in prepared.ready.items():
        for number in range(REPEATS):
            request = Request('robot', number, name, engines.sources[name].make(), 0.0, 0.0)
            start = perf_counter()
            make_ticket(model, request, 0.0)
            seconds.append(perf_counter() - start)
    return median(seconds)


def measure_gap(real: Serving, server: ServerConfig, name: str, slo: float,
                times: StageTimes) -> float:
    """Return how much longer locksteps take than their times, s, from a queue that never ends."""
    full = Load(name, server.max_batch)
    lockstep = (times.locksteps[Pair(full, full)].whole if server.engine == 'lockstep'
                else times.vlm[full] + times.adit[full])
    robots = ceil(OVERLOAD * server.max_batch / lockstep / Traffic().rate)
    traffic = Traffic(epochs=1)
    row = measure(real, {name: slo}, robots, traffic)
    return max(0.0, traffic.seconds * server.max_batch / row['answered'] - lockstep)


def show(row: Mapping[str, Any], sources: list[str]) -> list[str]:
    """Return the figures of a row: those of the engine, and of each simulation."""
    def figures(source: str) -> list[str]:
        latency = row[source]['latency_ms']
        return [f'{100 * row[source]["attainment"]:.2f}',
                *('-' if latency[key] is None else f'{latency[key]:.1f}'
                  for key in ('p50', 'p99'))]
    cells = figures('engine')
    for source in sources:
        apart = 100 * abs(row[source]['attainment'] - row['engine']['attainment'])
        cells += [*figures(source), f'{apart:.2f}']
    return cells


def listed(times: StageTimes, gaps: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return stage times by what they are of, and measured gaps."""
    return [*((f'VLM {load.batch}', seconds) for load, seconds in times.vlm.items()),
            *((f'ADiT {load.batch}', seconds) for load, seconds in times.adit.items()),
            *((f'({pair.vlm.batch}, {pair.adit.batch})', together.whole)
              for pair, together in times.locksteps.items()),
            ('preprocessing', times.preprocess),
            *((f'gap of {mode}', seconds) for mode, seconds in gaps.items())]


if __name__ == '__main__':
    main()
