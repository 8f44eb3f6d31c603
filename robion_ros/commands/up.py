# SPDX-License-Identifier: Apache-2.0
"""
`robion up`: the processes of a factory, until Ctrl-C.

Does not know what they do, nor whether they do it.
"""

import argparse

from robion_ros.commands.stop import Stop
from robion_ros.factory_file import load
from robion_ros.processes import factory_processes
from robion_ros.supervisor import Supervisor

LONG = 3600.0


def run(arguments: argparse.Namespace) -> int:
    """Start a factory and keep it running."""
    factory = load(arguments.factory)
    processes = factory_processes(factory, arguments.factory, arguments.log_level,
                                  arguments.robots)
    with Stop() as stop, Supervisor(processes):
        while not stop.wait(LONG):
            pass
    return 0
