# SPDX-License-Identifier: Apache-2.0
"""
`robion bench`: an evaluation from its arguments to its table, file and plots.

Knows how one goes; what is measured stands in bench/.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
import logging
import os
from pathlib import Path
import sys
from typing import Any, cast

from robion_ros.bench.ablation import run_ablation
from robion_ros.bench.capacity import MOST
from robion_ros.bench.engines import Engines, make_sources
from robion_ros.bench.evaluate import Evaluation, spread_deadlines, Way
from robion_ros.bench.machine import describe_machine, format_machine
from robion_ros.bench.modes import find_obstacle, find_second, ModeOptions
from robion_ros.bench.network import load_network
from robion_ros.bench.plots import draw, find_pyplot, make_folder
from robion_ros.bench.prepared import make_configs, prepare, Prepared
from robion_ros.bench.report import make_table
from robion_ros.bench.results import load_results, Results
from robion_ros.bench.serving import Serving
from robion_ros.bench.settings import BenchError, find_slos, Mode, name_models, Traffic
from robion_ros.commands.bench_arguments import MODES, ROS_MODES
from robion_ros.commands.domain import claim_domain
from robion_ros.commands.table import format_table
from robion_ros.config import EngineKind, FactoryConfig, ModelConfig, Policy, ServerConfig
from robion_ros.engine.batch import batch_sizes
from robion_ros.simulation.serving import open_simulated
from robion_ros.simulation.stage_times import complete
from robion_ros.simulation.times_file import load_times

Serve = Callable[[Any, Any], AbstractContextManager[Serving]]
"""Serves in a mode under a policy."""
NO_SLO = 1.0
"""The deadline of models whose locksteps are timed, where it plays no part, s."""
CLEAR = '\r\033[K'
"""Takes back the line on a terminal."""


def run(arguments: argparse.Namespace) -> int:
    """Make an evaluation; return 0, or 2 where it cannot be made, or 130 after Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr)
    try:
        if arguments.kind == 'plot':
            make_folder(arguments.plots)
            plot(load_results(arguments.file), arguments.plots, Path(arguments.file).stem)
            return 0
        if arguments.kind == 'manage':
            # Needs OR-Tools, which machines that serve robots without a manager lack.
            from robion_ros.commands import bench_manage
            return bench_manage.run(arguments, say)
        if arguments.kind == 'place':
            from robion_ros.commands import bench_place
            return bench_place.run(arguments, say)
        return evaluate(arguments)
    except (BenchError, ImportError) as error:
        print(f'robion bench: {error}', file=sys.stderr)
        return 2


def evaluate(arguments: argparse.Namespace) -> int:
    """Measure and show what was found, also if it was interrupted."""
    if arguments.plots:
        find_pyplot()  # Not after an hour of measuring.
        make_folder(arguments.plots)
    code = 0
    results = Results(arguments.kind, arguments.json)
    try:
        if arguments.kind == 'ablation':
            measure_locksteps(arguments, results)
        else:
            measure_traffic(arguments, results)
    except KeyboardInterrupt:
        say('interrupted; what was measured until then:')
        code = 130
    except BenchError as error:
        if not results.found['rows']:
            raise
        say(f'robion bench: {error}; what was measured until then:')
        code = 2
    print('\n'.join(format_table(*make_table(results.found))))
    if arguments.json:
        say(f'everything measured is in {arguments.json}')
    if arguments.plots and results.found['rows']:
        plot(results.found, arguments.plots,
             Path(arguments.json or f'bench_{arguments.kind}').stem)
    return code


def measure_locksteps(arguments: argparse.Namespace, results: Results) -> None:
    """Time locksteps."""
    models = name_models([arguments.model])
    configs = make_configs(models, dict.fromkeys(models, NO_SLO), Traffic().rate,
                           arguments.cameras, arguments.joints, arguments.seed)
    prepared = make_ready(arguments, configs)
    describe(arguments, results, configs, (prepared.device.name,), {})
    for row in run_ablation(prepared, arguments.repeats, say):
        results.add_row(row)


def measure_traffic(arguments: argparse.Namespace, results: Results) -> None:
    """Serve simulated robots."""
    if arguments.times and getattr(arguments, 'ros', None):
        raise BenchError('--times simulates what --ros runs: give one of them')
    models = name_models(arguments.models if arguments.kind == 'colocate'
                         else [arguments.model])
    slos = find_slos(models, dict(arguments.slo))
    traffic = Traffic(arguments.rate, arguments.epochs, arguments.seconds, arguments.lead,
                      arguments.seed, arguments.target)
    network = load_network(arguments.network)
    configs = make_configs(models, slos, traffic.rate, arguments.cameras, arguments.joints,
                           arguments.seed)
    if getattr(arguments, 'ros', None):
        ways = compare_factories(arguments, results, configs, slos)
    elif arguments.times:
        ways = compare_simulated(arguments, results, configs, slos)
    else:
        ways = compare_engines(arguments, results, configs, slos)
    if arguments.kind == 'sweep':
        evaluation = Evaluation(traffic, network, results, say, show, most=find_most(arguments))
        evaluation.sweep(ways, arguments.robots)
        return
    evaluation = Evaluation(traffic, network, results, say, show, arguments.first,
                            arguments.resolution, find_most(arguments))
    for way in ways:
        evaluation.find_capacity(way)


def find_most(arguments: argparse.Namespace) -> int:
    """Return the largest number of robots that can be asked for."""
    most = getattr(arguments, 'ros', None) or MOST
    asked = max(getattr(arguments, 'robots', ()), default=0)
    if asked > most:
        raise BenchError(f'--robots asks for {asked}, '
                         + (f'--ros allows {most}: raise it' if most != MOST else
                            f'there may be {most} at most'))
    return most


def compare_engines(arguments: argparse.Namespace, results: Results,
                    configs: Mapping[str, ModelConfig], slos: Mapping[str, float]
                    ) -> Sequence[Way]:
    """Make the models ready once and return the ways of serving them here."""
    prepared = make_ready(arguments, configs)
    second = find_second(prepared.device.name, arguments.second_device)
    devices = (prepared.device.name, second) if second else (prepared.device.name,)
    describe(arguments, results, configs, devices, slos)
    width, height = arguments.image
    engines = Engines(prepared, make_sources(prepared, height, width, arguments.seed),
                      arguments.late, ModeOptions(arguments.slots, arguments.buffer, second))
    if arguments.kind == 'colocate':
        return compare_policies(arguments, engines.serve, slos)
    obstacles = {mode: find_obstacle(mode, engines.prepared, engines.options)
                 for mode in arguments.modes or MODES}
    return compare_modes(arguments, engines.serve, obstacles, slos)


def compare_simulated(arguments: argparse.Namespace, results: Results,
                      configs: Mapping[str, ModelConfig], slos: Mapping[str, float]
                      ) -> Sequence[Way]:
    """Return servers on virtual time as ways of serving; their stages take what a file says."""
    times = complete(load_times(arguments.times), {
        name: config.architecture for name, config in configs.items()},
        batch_sizes(arguments.max_batch))
    describe(arguments, results, configs, (), slos)
    if times.derived:
        say(times.note())

    def serve(mode: Mode, policy: Policy) -> AbstractContextManager[Serving]:
        return open_simulated(ServerConfig(
            tuple(configs), arguments.device, arguments.max_batch, policy,
            engine=cast(EngineKind, mode), late=arguments.late), times)
    if arguments.kind == 'colocate':
        return compare_policies(arguments, serve, slos)
    return compare_modes(arguments, serve, {
        mode: '' if mode in ROS_MODES else f'there are {", ".join(ROS_MODES)} on virtual time'
        for mode in arguments.modes or ROS_MODES}, slos)


def compare_factories(arguments: argparse.Namespace, results: Results,
                      configs: Mapping[str, ModelConfig], slos: Mapping[str, float]
                      ) -> Sequence[Way]:
    """Return factories as ways of serving, in a ROS domain of their own."""
    from robion_ros.bench.ros_graph import Graph, open_graph  # ROS is not everywhere.
    most, modes = find_most(arguments), arguments.modes or ROS_MODES
    if others := [mode for mode in modes if mode not in ROS_MODES]:
        raise BenchError(f'a server has no mode {others[0]!r}; with --ros there are '
                         f'{", ".join(ROS_MODES)}')
    domain = claim_domain(os.environ)
    say(f'ROS_DOMAIN_ID={domain}')
    devices = tuple(arguments.device.split(','))
    describe(arguments, results, configs, devices, slos)

    def serve(mode: EngineKind) -> AbstractContextManager[Serving]:
        servers = {f'server_{index}': ServerConfig(tuple(configs), device, arguments.max_batch,
                                                   arguments.policy, mode, arguments.late)
                   for index, device in enumerate(devices)}
        return open_graph(Graph(FactoryConfig(configs, servers), most, image=arguments.image,
                                seed=arguments.seed))
    return [Way({'mode': f'{mode} over ROS', 'policy': arguments.policy},
                partial(serve, cast(EngineKind, mode)), slos) for mode in modes]


def compare_modes(arguments: argparse.Namespace, serve: Serve, obstacles: Mapping[str, str],
                  slos: Mapping[str, float]) -> Sequence[Way]:
    """Return the modes asked for; by default all without an obstacle."""
    for mode, obstacle in obstacles.items():
        if obstacle and arguments.modes:
            raise BenchError(f'mode {mode!r} cannot be measured: {obstacle}')
        if obstacle:
            say(f'mode {mode!r} is left out: {obstacle}')
    modes = [mode for mode, obstacle in obstacles.items() if not obstacle]
    return [Way({'mode': mode, 'policy': arguments.policy},
                partial(serve, mode, arguments.policy), slos)
            for mode in modes]


def compare_policies(arguments: argparse.Namespace, serve: Serve,
                     slos: Mapping[str, float]) -> Sequence[Way]:
    """Return the policies under the deadlines asked for."""
    return [Way({'mode': arguments.mode, 'policy': policy, 'deadlines': deadlines},
                partial(serve, arguments.mode, policy),
                spread_deadlines(slos, deadlines == 'different'))
            for deadlines in arguments.deadlines for policy in arguments.policies]


def make_ready(arguments: argparse.Namespace, configs: Mapping[str, ModelConfig]) -> Prepared:
    """Load models and make them ready for all modes, once."""
    say(f'{", ".join(configs)} on {arguments.device}, seed {arguments.seed}')
    return prepare(configs, arguments.device, arguments.max_batch)


def describe(arguments: argparse.Namespace, results: Results, configs: Mapping[str, ModelConfig],
             devices: Sequence[str], slos: Mapping[str, float]) -> None:
    """Say and keep what the figures depend on."""
    machine = describe_machine(devices)
    say(format_machine(machine))
    settings: dict[str, Any] = {
        key: value for key, value in vars(arguments).items()
        if key not in ('command', 'kind', 'json', 'plots', 'model', 'models', 'slo', 'device',
                       'second_device')}
    results.describe(settings | {
        'models': {name: config.architecture for name, config in configs.items()},
        'slo_ms': {name: slo * 1e3 for name, slo in slos.items()}, 'devices': list(devices)},
        machine)


def plot(found: Mapping[str, Any], folder: str, stem: str) -> None:
    """Draw plots and say where they are."""
    for path in draw(found, Path(folder), stem):
        say(f'drawn: {path}')


def say(text: str) -> None:
    """Show progress: not where results go."""
    print(f'{CLEAR if sys.stderr.isatty() else ""}{text}', file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Show progress that the next text takes the place of, on a terminal."""
    if sys.stderr.isatty():
        print(f'{CLEAR}{text}', end='', file=sys.stderr, flush=True)
