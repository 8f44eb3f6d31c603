# SPDX-License-Identifier: Apache-2.0
"""
`robion simulate`: a factory on virtual time, from its arguments to its tables, file and plot.

Knows how a run goes; what is simulated stands in simulation/.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
import sys
from time import monotonic
from typing import Any

from robion_ros import words
from robion_ros.bench.machine import describe_machine
from robion_ros.bench.network import load_network
from robion_ros.bench.plots import draw, find_pyplot, make_folder
from robion_ros.bench.results import Results
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.commands.capacities import missing
from robion_ros.commands.table import format_table
from robion_ros.config import FactoryConfig, FieldError
from robion_ros.engine.batch import batch_sizes
from robion_ros.engine.device import open_device
from robion_ros.engine.memory import show as size
from robion_ros.engine.profile import default_folder
from robion_ros.factory_file import load
from robion_ros.simulation.factory import Factory
from robion_ros.simulation.scenario import Scenario
from robion_ros.simulation.stage_times import complete, StageTimes
from robion_ros.simulation.summary import describe
from robion_ros.simulation.tables import model_table, plan_table, server_table
from robion_ros.simulation.times_file import load_profile, load_times

REQUEST = 1500
"""Memory that a request takes until all is written, bytes: measured."""


def run(arguments: argparse.Namespace) -> int:
    """Simulate a factory; return 0, or 2 where it cannot be, or 130 after Ctrl-C."""
    try:
        simulate(arguments)
    except BenchError as error:
        print(f'robion simulate: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def simulate(arguments: argparse.Namespace) -> None:
    """Run, show and keep what came of it."""
    if arguments.plots:
        find_pyplot()
        make_folder(arguments.plots)
    results = Results('simulation', arguments.json)
    source, scenario = prepare(arguments)
    check_memory(scenario)
    factory = scenario.factory
    begun = monotonic()
    simulated = Factory(scenario).run()
    wall = monotonic() - begun
    settings = {key: getattr(arguments, key) for key in (
        'factory', 'seconds', 'lead', 'seed', 'network', 'planning')} | {
        'times': source, 'servers': len(factory.servers), 'wall_s': round(wall, 3),
        'models': {name: model.architecture for name, model in factory.models.items()},
        'kills': [f'{kill.server}@{kill.at:g}:{kill.back:g}' for kill in scenario.kills],
        'populations': [f'{change.model}={change.count}@{change.at:g}'
                        for change in scenario.changes]}
    results.found |= describe(scenario, simulated)
    results.describe(settings, describe_machine(()))
    show(results.found)
    if arguments.json:
        say(f'all figures and requests are in {arguments.json}')
    if arguments.plots:
        for path in draw(results.found, Path(arguments.plots),
                         Path(arguments.json or 'simulation').stem):
            say(f'drawn: {path}')


def prepare(arguments: argparse.Namespace) -> tuple[str, Scenario]:
    """Return where the stage times come from, and what is to be simulated with them."""
    factory = load(arguments.factory)
    if arguments.servers:
        factory = with_servers(factory, arguments.servers)
    for server, model in missing(factory):
        raise FieldError(f'models.{model}.capacity', 'is not in the file, which is all that is '
                         f"simulated: write down what 'robion capacity' prints on the machine of "
                         f'{server}')
    source, times = find_times(arguments)
    sizes = batch_sizes(max(server.max_batch for server in factory.servers.values()))
    times = complete(times, {name: factory.models[name].architecture for name in sorted(
        {name for server in factory.servers.values() for name in server.models})}, sizes)
    say(f'stage times: {source}')
    if times.derived:
        say(times.note())
    return source, Scenario(
        factory, times, Traffic(epochs=1, seconds=arguments.seconds, lead=arguments.lead,
                                seed=arguments.seed),
        load_network(arguments.network), tuple(arguments.kill), tuple(arguments.population),
        arguments.planning)


def check_memory(scenario: Scenario) -> None:
    """Raise FieldError where all requests would not fit into the memory of this machine."""
    models, traffic = scenario.factory.models, scenario.traffic
    rate = max(sum(models[model].rate for model in robots.values())
               for _, robots in scenario.populations)
    needed = int(REQUEST * rate * (traffic.lead + traffic.seconds))
    memory = open_device('cpu').memory()
    if memory and needed > memory.free:
        raise FieldError('--seconds', f'{traffic.seconds:g} s are '
                         f'{rate * traffic.seconds:.3g} requests, which take about '
                         f'{size(needed)} of memory; {size(memory.free)} are free: simulate a '
                         'shorter time, or fewer robots')


def find_times(arguments: argparse.Namespace) -> tuple[str, StageTimes]:
    """Return the stage times of a file or of a stored profile, and what they are of."""
    if arguments.times:
        return str(arguments.times), load_times(arguments.times)
    gpu, times = load_profile(default_folder(), arguments.gpu)
    return f'profile of {gpu}', times


def with_servers(factory: FactoryConfig, number: int) -> FactoryConfig:
    """Return the factory with so many servers, those of the file first, then their copies."""
    # A copy of gpu is not called gpu_2 where the file has a gpu_2.
    names = ((name, copy) for turn in count(1) for name in factory.servers
             if (copy := name if turn == 1 else f'{name}_{turn}') == name
             or copy not in factory.servers)
    servers = {copy: factory.servers[name] for name, copy in islice(names, number)}
    return replace(factory, servers=servers)


def show(found: Mapping[str, Any]) -> None:
    """Print the tables."""
    for table in (model_table, server_table, plan_table):
        print('\n'.join(format_table(*table(found))), end='\n\n')
    settings, whole = found['settings'], found['all']
    if not whole['sent']:
        say('nobody asked: the file names no robots; --population MODEL=N gives some')
    print(f'{words.count(settings["servers"], "server")}, '
          f'{words.count(whole["sent"], "request")} in {settings["seconds"]:g} s: '
          f'{whole["attainment"]:.2%} in time, {whole["sent"] - whole["answered"]} not answered, '
          f'{whole["unanswered"]} of them without a living server; simulated in '
          f'{settings["wall_s"]:.1f} s')
    for plan in found['results']:
        if plan['problem']:
            say(f'at {plan["in_force"]:.2f} s: {plan["problem"]}')


def say(text: str) -> None:
    """Show what is not a result."""
    print(text, file=sys.stderr, flush=True)
