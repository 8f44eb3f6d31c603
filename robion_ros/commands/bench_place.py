# SPDX-License-Identifier: Apache-2.0
"""
`robion bench place`: how many requests are in time where the manager divides the robots.

Beside simple ways to divide them, with the same requests at the same times, by real engines or by
simulated servers.
Knows how the evaluation goes; ways and servers stand in bench/.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, ExitStack
from dataclasses import replace
from itertools import product
from typing import Any

from robion_ros.bench.machine import describe_machine, format_machine
from robion_ros.bench.placing import draw_robots, name_robots, place_all, Placing, seat
from robion_ros.bench.results import Results
from robion_ros.bench.serving import Serving
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.bench.trial import measure_robots
from robion_ros.bench.workers import Divided, open_workers
from robion_ros.commands.plan import measured_capacities
from robion_ros.commands.table import format_table
from robion_ros.config import FactoryConfig
from robion_ros.engine.batch import batch_sizes
from robion_ros.factory_file import load
from robion_ros.manager.group import Counts
from robion_ros.manager.traffic import TrafficProblem
from robion_ros.simulation.serving import open_simulated
from robion_ros.simulation.stage_times import complete
from robion_ros.simulation.times_file import load_times

HEADER = ('part', 'draw', 'placed by', 'robots', 'without a server', 'pairs', 'fullest %',
          'attainment %', 'worst model %', 'p50 ms', 'p99 ms', 'batch')


def run(arguments: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Serve every draw in every way; show what was found, also if it was interrupted."""
    factory, capacities = read(arguments)
    traffic = Traffic(find_rate(factory), arguments.epochs, arguments.seconds, arguments.lead,
                      arguments.seed, arguments.target)
    results = Results('place', arguments.json)
    code = 0
    try:
        with open_servers(factory, arguments) as servers:
            machine = describe_machine(() if arguments.times else sorted(
                {server.device for server in factory.servers.values()}))
            say(format_machine(machine))
            results.describe({
                **{key: value for key, value in vars(arguments).items()
                   if key not in ('command', 'kind', 'json')},
                'capacities': {f'{server}/{model}': count
                               for (server, model), count in capacities.items()}}, machine)
            for fill, draw in product(arguments.fill, range(arguments.draws)):
                compare(factory, capacities, arguments, traffic, fill, draw, servers, results,
                        say)
    except KeyboardInterrupt:
        say('interrupted; what was measured until then:')
        code = 130
    print('\n'.join(format_table(HEADER, [list_row(row) for row in results.found['rows']])))
    return code


def read(arguments: argparse.Namespace) -> tuple[FactoryConfig, Counts]:
    """Return the factory, on one device if that is asked for, and all its capacities."""
    factory = load(arguments.factory)
    if arguments.in_turn:
        factory = replace(factory, servers={
            name: replace(server, device=arguments.in_turn)
            for name, server in factory.servers.items()})
    measured = measured_capacities(factory, arguments.factory)
    return factory, {(name, model): factory.capacity(name, model) or measured[name, model]
                     for name, server in factory.servers.items() for model in server.models}


@contextmanager
def open_servers(factory: FactoryConfig, arguments: argparse.Namespace
                 ) -> Iterator[Mapping[str, Serving]]:
    """Make the servers ready, each in a process of its own, or simulate them."""
    if not arguments.times:
        with open_workers(factory, bool(arguments.in_turn), arguments.seed) as workers:
            yield workers
        return
    times = complete(load_times(arguments.times), {
        name: model.architecture for name, model in factory.models.items()},
        sorted({size for server in factory.servers.values()
                for size in batch_sizes(server.max_batch)}))
    with ExitStack() as stack:
        yield {name: stack.enter_context(open_simulated(server, times))
               for name, server in factory.servers.items()}


def find_rate(factory: FactoryConfig) -> float:
    """Return the rate of all models, Hz; raise BenchError where they have several."""
    rates = {name: model.rate for name, model in factory.models.items()}
    if len(set(rates.values())) > 1:
        raise BenchError('robots of different rates cannot be compared here: '
                         + ', '.join(f'{name} {rate:g} Hz' for name, rate in rates.items())
                         + '; give all models one rate')
    return next(iter(rates.values()))


def compare(factory: FactoryConfig, capacities: Counts, arguments: argparse.Namespace,
            traffic: Traffic, fill: float, draw: int, servers: Mapping[str, Serving],
            results: Results, say: Callable[[str], None]) -> None:
    """Serve one population in every way."""
    hosts = {name: server.models for name, server in factory.servers.items()}
    counts = draw_robots(hosts, capacities, fill, draw)
    robots = name_robots(counts, {name: model.slo for name, model in factory.models.items()})
    say(f'{fill:g} filled, draw {draw}: '
        + ', '.join(f'{count} {model}' for model, count in counts.items()))
    for placing in place_all(TrafficProblem(counts, hosts, capacities),
                             factory.manager.time_limit):
        seats = seat(robots, placing.robots)
        serving = Divided(servers, bool(arguments.in_turn or arguments.times), seats)
        row = {'fill': fill, 'draw': draw, **describe(placing),
               'without': len(robots) - len(seats), **measure_robots(serving, robots, traffic)}
        results.add_row(row)
        say('  '.join(map(str, list_row(row))))


def describe(placing: Placing) -> Mapping[str, Any]:
    """Return a way of placing as what JSON can hold."""
    return {'way': placing.way, 'objective': placing.objective,
            'loads': {server: float(load) for server, load in placing.loads.items()},
            'placed': {f'{server}/{model}': count
                       for (server, model), count in placing.robots.items()}}


def list_row(row: Mapping[str, Any]) -> list[object]:
    """Return the line of a row."""
    latency = row['latency_ms']
    return [f'{row["fill"]:g}', row['draw'], row['way'], row['robots'], row['without'],
            row['objective'], f'{100 * max(row["loads"].values()):.0f}',
            f'{100 * row["attainment"]:.2f}', f'{100 * row["worst"]:.2f}',
            *('-' if latency[name] is None else f'{latency[name]:.1f}' for name in ('p50', 'p99')),
            f'{row["batch"]:.2f}']
