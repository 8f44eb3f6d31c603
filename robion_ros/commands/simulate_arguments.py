# SPDX-License-Identifier: Apache-2.0
"""
What can be said to `robion simulate`.

Loads nothing heavy. Knows what is asked for, not how it is found out.
"""

import argparse
from collections.abc import Callable
from typing import Any

from robion_ros.simulation.events import read_change, read_kill

DESCRIPTION = """\
Runs a factory on virtual time: its queues, locksteps, plans and failures, with stored times of
the stages, without GPUs and without ROS. docs/benchmarking.md says what is simulated."""

Reader = Callable[[str], Any]


def add_simulate(commands: Any, number: Callable[..., Reader], output: Reader) -> None:
    """Describe the command; number and output read the arguments of those kinds."""
    simulate = commands.add_parser(
        'simulate', help='run a factory on virtual time, as large as you like, without GPUs',
        description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    simulate.add_argument('factory', metavar='FACTORY.yaml', help='the factory file')
    times = simulate.add_mutually_exclusive_group()
    times.add_argument('--times', metavar='FILE', help='what stages take: a file like '
                       'share/robion_ros/config/h200_times.yaml, or of robion bench ablation '
                       '--json')
    times.add_argument('--gpu', metavar='NAME', help='a part of the name of the GPU whose stored '
                       'profile counts; default: the only one')
    simulate.add_argument('--servers', type=number(int, 1, 4096), metavar='N',
                          help="so many servers, copies of the file's in turn: gpu, gpu_2, ...")
    simulate.add_argument('--population', type=checked(read_change), action='append', default=[],
                          metavar='MODEL=N[@S]', help='a model has N robots, from S s on; may be '
                          "repeated; default: the file's")
    simulate.add_argument('--kill', type=checked(read_kill), action='append', default=[],
                          metavar='SERVER@S[:BACK]', help='a server dies at S s, and serves again '
                          'from BACK on; may be repeated')
    simulate.add_argument('--seconds', type=number(float, 1, 86_400), default=60.0, metavar='S',
                          help='of virtual time that count (default: 60)')
    simulate.add_argument('--lead', type=number(float, 0, 3600), default=1.0, metavar='S',
                          help='before those, not counted (default: 1)')
    simulate.add_argument('--seed', type=number(int, 0, 2**31), default=0, metavar='N',
                          help='of phases and network (default: 0)')
    simulate.add_argument('--network', default='none', metavar='NAME|FILE',
                          help='delays and losses between robots and servers: none, wifi7, cloud '
                          'or a YAML file (default: none)')
    simulate.add_argument('--planning', type=number(float, 0, 3600), metavar='S',
                          help='how long a plan takes; default: as long as it takes here, so that '
                          'two runs differ a little')
    simulate.add_argument('--json', type=output, metavar='FILE',
                          help='write all figures and every request there')
    simulate.add_argument('--plots', metavar='FOLDER', help='draw a plot there')


def checked(read: Reader) -> Reader:
    """Return a reader whose mistakes argparse shows as they are."""
    def reader(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return reader
