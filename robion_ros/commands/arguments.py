# SPDX-License-Identifier: Apache-2.0
"""
What can be said to `robion`, and what it says to mistakes.

What a command does stands in a module of its own, imported when it is asked for.
"""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
import os
from pathlib import Path
import re
import sys

from robion_ros.commands.bench_arguments import add_bench
from robion_ros.commands.simulate_arguments import add_simulate
from robion_ros.config import DEVICE, FieldError
from robion_ros.factory_file import ConfigError
from robion_ros.manager.errors import PlanError
from robion_ros.processes import LOG_LEVELS, NotInstalledError

EXIT_CODES = """\
exit codes:
  0    done; demo: the figures were good; up: ended by Ctrl-C
  1    there is no plan for the robots; demo: the figures were not good; check: it cannot be served
  2    wrong arguments or factory file, or a capacity that plan needs is not known; up: every
       process refused to run; profile, capacity, bench, simulate: what is asked for cannot be
       measured here
  130  demo, plan, profile, capacity, bench, simulate: ended by Ctrl-C before its time
  141  nobody reads the output any more
"""
MOST_ROBOTS = 10_000
MOST_DOMAIN = 232
"""The ports of those above are beyond the last one."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return its exit code."""
    arguments = make_parser().parse_args(argv)
    try:
        return int(import_module(f'robion_ros.commands.{arguments.command}').run(arguments))
    except (ConfigError, FieldError, NotInstalledError, PlanError) as error:
        print(f'robion {arguments.command}: {error}', file=sys.stderr)
        return 1 if isinstance(error, PlanError) else 2


def make_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = argparse.ArgumentParser(
        prog='robion', description='Serves the robots of a factory with their VLA models.',
        epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True, metavar='COMMAND')

    demo = commands.add_parser(
        'demo', help='start a factory with simulated robots and show how they are served')
    demo.add_argument('--robots', type=number(int, 1, MOST_ROBOTS), metavar='N',
                      help='simulated robots; default: those of the factory file, 8')
    demo.add_argument('--seconds', type=number(float, 2, 86400), default=20.0, metavar='S',
                      help='how long they are served, s (default: 20)')
    demo.add_argument('--json', type=output, metavar='FILE', help='write the summary there')
    demo.add_argument('--domain', type=number(int, 0, MOST_DOMAIN), metavar='N',
                      help='ROS domain to run in, whatever ROS_DOMAIN_ID says; default: a free '
                      'one, on this machine only')
    demo.add_argument('--config', metavar='FACTORY.yaml',
                      help='another factory file; default: share/robion_ros/config/demo.yaml')

    up = commands.add_parser(
        'up', help='start the servers and the manager of a factory until Ctrl-C')
    add_factory(up)
    up.add_argument('--robots', type=number(int, 0, MOST_ROBOTS), default=0, metavar='N',
                    help="how many of the file's robots to simulate (default: 0)")
    up.add_argument('--log-level', choices=LOG_LEVELS, default='info',
                    help='lowest level that is logged (default: info)')

    plan = commands.add_parser(
        'plan', help='print which server would answer which robot; starts nothing')
    add_factory(plan)
    plan.add_argument('--json', type=output, metavar='FILE', help='write the plan there, too')
    plan.add_argument('--svg', type=output, metavar='FILE', help='draw the plan there')

    check = commands.add_parser(
        'check', help='say what a checkpoint holds, propose its part of a factory file, and run '
        'one request')
    check.add_argument('checkpoint', metavar='CHECKPOINT',
                       help='a folder, or owner/name of a model of the Hugging Face hub')
    check.add_argument('--tokenizer', type=existing, metavar='FILE',
                       help="the tokenizer's file; default: that in the folder")
    check.add_argument('--device', type=device, default='cpu', metavar='DEVICE',
                       help='where the request runs: cpu, or cuda:<index> (default: cpu)')
    check.add_argument('--json', type=output, nargs='?', const='-', metavar='FILE',
                       help='write what is found there, or print it, as JSON')

    profile = commands.add_parser(
        'profile', help='measure on the GPUs what their servers would measure at the first start')
    add_factory(profile)
    profile.add_argument('--server', metavar='NAME', help='this one alone; default: all that have '
                         'a GPU, which must be on this machine')
    profile.add_argument('--again', action='store_true',
                         help='measure anew what was measured before')

    capacity = commands.add_parser(
        'capacity', help='measure how many robots of each model the devices sustain, where the '
        'factory file does not say it')
    add_factory(capacity)
    capacity.add_argument('--models', type=names, default=(), metavar='NAME,...',
                          help='these alone, also those whose capacity is in the file')
    capacity.add_argument('--server', metavar='NAME', help='this one alone; default: all, whose '
                          'devices must be on this machine')
    capacity.add_argument('--again', action='store_true',
                          help='measure anew what was measured before, or at another rate')
    capacity.add_argument('--epochs', type=number(int, 1, 1000), default=3, metavar='N',
                          help='runs of each number of robots (default: 3)')
    capacity.add_argument('--seconds', type=number(float, 0.1, 86400), default=4.0, metavar='S',
                          help='of a run that count, s (default: 4)')

    add_bench(commands, number, output)
    add_simulate(commands, number, output)
    return parser


def add_factory(parser: argparse.ArgumentParser) -> None:
    """Add the argument that most commands have."""
    parser.add_argument('factory', metavar='FACTORY.yaml', help='the factory file')


def number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], float]:
    """Return a reader of numbers within limits."""
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f'{text!r} is not a number') from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f'is {text}, must be from {low:g} to {high:g}')
        return value
    return read


def names(text: str) -> tuple[str, ...]:
    """Return names that stand between commas."""
    return tuple(filter(None, text.split(',')))


def existing(text: str) -> str:
    """Check that a file is there."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f'{text} is not a file')
    return os.path.abspath(text)


def device(text: str) -> str:
    """Check that a device can be."""
    if not re.fullmatch(DEVICE, text):
        raise argparse.ArgumentTypeError(f"{text!r} must be 'cpu' or 'cuda:<index>'")
    return text


def output(text: str) -> str:
    """Check now, not after a long run, that a file can be written."""
    if text == '-':
        return text
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f'{text} is a folder, name a file')
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f'{text} cannot be written: is {path.parent} a folder, '
                                         'and yours?')
    return text
