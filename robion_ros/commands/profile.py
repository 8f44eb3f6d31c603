# SPDX-License-Identifier: Apache-2.0
"""
`robion profile`: how long batches of a factory's models take side by side on its GPUs.

Measures, ahead of a server's first start, what the server would measure then. Knows neither
graphs nor kernels.
"""

import argparse
from collections.abc import Iterator
import sys

from robion_ros.commands.progress import Bar
from robion_ros.commands.table import format_table
from robion_ros.config import check_choice, FactoryConfig, FieldError
from robion_ros.engine.device import open_device
from robion_ros.engine.profile import best, Table, WHOLE
from robion_ros.factory_file import load
from robion_ros.models import registry


def run(arguments: argparse.Namespace) -> int:
    """Profile the servers of a factory file that have a GPU, or the one that is named."""
    factory = load(arguments.factory)
    if arguments.server:
        check_choice('--server', arguments.server, factory.servers, 'server')
    servers = [name for name, server in factory.servers.items()
               if server.device != 'cpu' and arguments.server in (None, name)]
    if not servers:
        raise FieldError('servers', 'none to profile: only a server whose device is a GPU, '
                                    "'cuda:<index>', is profiled")
    for name in servers:
        try:
            profile_server(factory, name, arguments.again)
        except ValueError as error:
            raise FieldError(f'servers.{name}', str(error)) from error
    return 0


def profile_server(factory: FactoryConfig, name: str, again: bool) -> None:
    """Profile a server's models on its device, and print what was found and where it is kept."""
    server = factory.servers[name]
    device = open_device(server.device)
    print(f'{name}, {device.name}: loading {", ".join(server.models)}', flush=True)
    models = {model: registry.load(factory.models[model], server.device)
              for model in server.models}
    print('capturing, then measuring what is not known yet', flush=True)
    with Bar(sys.stdout) as bar:
        path, table = device.profile(models, server.max_batch, again, bar.show)
    print('\n'.join(format_table(('VLM', 'batch', 'ADiT', 'batch', 'best cap, SMs', 'steps beside',
                                  'ms', 'no cap, ms', 'gain'), rows(table))))
    print(f'{"measured now" if bar.shown else "measured before"}, kept in {path}', flush=True)


def rows(table: Table) -> Iterator[tuple[object, ...]]:
    """
    Yield the rows of a table: two batches, and their lockstep with and without a cut.

    steps beside is how many denoising steps keep to their part of the GPU, '-' for all.
    """
    for (vlm, adit), times in table.items():
        cut = best(times)
        yield (*vlm, *adit, cut.cap or '-', cut.steps or '-', f'{times[cut] * 1e3:.2f}',
               f'{times[WHOLE] * 1e3:.2f}', f'{times[WHOLE] / times[cut]:.3f}')
