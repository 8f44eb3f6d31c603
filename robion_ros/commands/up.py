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

LOOK_PERIOD = 1.0
"""How often it is seen whether anything runs, s."""


def run(arguments: argparse.Namespace) -> int:
    """Start a factory and keep it running; return 2 if all its processes refused to run."""
    factory = load(arguments.factory)
    processes = factory_processes(factory, arguments.factory, arguments.log_level,
                                  arguments.robots)
    with Stop() as stop, Supervisor(processes) as supervisor:
        while not stop.wait(LOOK_PERIOD):
            # All of it for good: servers and managers end so only by refusing to run.
            if supervisor.wait(0):
                return 2
    return 0
