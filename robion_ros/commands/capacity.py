# SPDX-License-Identifier: Apache-2.0
"""
`robion capacity`: how many robots of each model the devices of a factory file sustain.

Measures, ahead of a server's first start, what the server would measure then. Knows neither
traffic nor engines.
"""

import argparse
from collections.abc import Collection, Mapping
import logging
import sys

from robion_ros.bench.settings import BenchError
from robion_ros.commands.capacities import ask, Place, Wanted
from robion_ros.commands.measuring import divide, Job, measure_all
from robion_ros.commands.progress import Bar
from robion_ros.commands.table import format_table
from robion_ros.config import check_choice, FactoryConfig
from robion_ros.engine.capacities import Capacity
from robion_ros.factory_file import load

HEADER = ('model', 'server', 'device', 'rate, Hz', 'slo, ms', 'robots', 'in time', 'p99, ms',
          'from')


def run(arguments: argparse.Namespace) -> int:
    """Measure what is not known, print all; return 0, or 2 where it cannot be measured."""
    logging.basicConfig(level=logging.WARNING, format='%(message)s', stream=sys.stderr)
    factory = load(arguments.factory)
    places = choose(factory, arguments.server, arguments.models)
    wanted = ask(factory, places)
    # A figure in the file is what counts, unless it is asked what would be measured.
    open_places = {place: one for place, one in wanted.items()
                   if arguments.models or not factory.capacity(*place)}
    known = {} if arguments.again else {place: found for place, one in open_places.items()
                                        if (found := one.known())}
    jobs = [Job(factory, device, part, arguments.again, arguments.epochs, arguments.seconds)
            for device, part in divide({place: one for place, one in open_places.items()
                                        if place not in known}).items()]
    for job in jobs:
        models = ', '.join(dict.fromkeys(model for _, model in job.wanted))
        print(f'measuring on {job.device}: {models}', file=sys.stderr, flush=True)
    try:
        with Bar(sys.stderr) as bar:
            measured = measure_all(jobs, bar.show)
    except BenchError as error:
        print(f'robion capacity: {error}', file=sys.stderr)
        return 2
    # Equal ones were measured once.
    by_key = {wanted[place].key: capacity for place, capacity in measured.items()}
    now = {place: by_key[one.key] for place, one in open_places.items() if one.key in by_key}
    print('\n'.join(format_table(HEADER, [
        list_place(factory, place, one, known.get(place), now.get(place))
        for place, one in wanted.items()])))
    files: Mapping[object, None] = dict.fromkeys(one.file.path for one in open_places.values()
                                              if one.known())
    if files:
        print(f'kept in {", ".join(map(str, files))}')
    return 0


def choose(factory: FactoryConfig, server: str | None, models: Collection[str]) -> list[Place]:
    """Return the servers and models that are meant; raise FieldError where there is none so."""
    if server:
        check_choice('--server', server, factory.servers, 'server')
    for model in models:
        check_choice('--models', model, factory.models, 'model')
    return [(name, model) for name, config in factory.servers.items() if server in (None, name)
            for model in config.models if not models or model in models]


def list_place(factory: FactoryConfig, place: Place, wanted: Wanted, known: Capacity | None,
               measured: Capacity | None) -> tuple[object, ...]:
    """Return the row of a place."""
    figure, found = factory.capacity(*place), measured or known
    server, model = place
    device = f'{wanted.device}, {wanted.kind}'
    row = model, server, device, f'{wanted.setting.rate:g}', f'{wanted.setting.slo * 1e3:g}'
    if found is None:
        return *row, figure, '-', '-', 'the factory file'
    source = (f'scaled from {found.scaled_from:g} Hz' if found.scaled_from
              else 'measured now' if measured else 'measured before')
    if figure:
        source += f', but the factory file says {figure}'
    return (*row, found.robots, f'{found.attainment:.1%}',
            '-' if found.p99 is None else f'{found.p99 * 1e3:.1f}', source)
