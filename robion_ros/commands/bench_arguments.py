# SPDX-License-Identifier: Apache-2.0
"""
What can be said to `robion bench`.

Loads nothing heavy. Knows what is asked for, not how it is found out.
"""

import argparse
from collections.abc import Callable
from typing import Any, get_args

from robion_ros.architectures import ARCHITECTURES
from robion_ros.bench.settings import FACTORIES, Mode, Size, Traffic
from robion_ros.config import EngineKind, LateRule, Policy

DESCRIPTION = """\
Measures how many robots one device serves in time, on random weights, without ROS.
docs/benchmarking.md says what is measured and what each mode imitates."""
DEADLINES = 'same', 'different'
MODES: tuple[str, ...] = get_args(Mode)
ROS_MODES: tuple[str, ...] = get_args(EngineKind)

Reader = Callable[[str], Any]


def add_bench(commands: Any, number: Callable[..., Reader], output: Reader) -> None:
    """Describe the command; number and output read the arguments of those kinds."""
    bench = commands.add_parser(
        'bench', help='measure how many robots one device serves in time', description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = bench.add_subparsers(dest='kind', required=True, metavar='KIND')

    capacity = kinds.add_parser(
        'capacity', help='find the largest number of robots that each mode sustains')
    sweep = kinds.add_parser(
        'sweep', help='measure attainment and latency against robots, for each mode')
    colocate = kinds.add_parser(
        'colocate', help='find the capacity of several models on one device, for each policy')
    ablation = kinds.add_parser(
        'ablation', help='time locksteps in sequence, side by side and under every cap')
    for parser in (capacity, sweep, ablation):
        parser.add_argument('--model', choices=tuple(ARCHITECTURES), default='pi0',
                            help='architecture (default: pi0)')
    for parser in (capacity, sweep, colocate, ablation):
        add_device(parser, number)
    for parser in (capacity, sweep, colocate):
        add_traffic(parser, number)
        add_serving(parser, number)
    for parser in (capacity, sweep, colocate):
        add_times(parser)
    for parser in (capacity, colocate):
        parser.add_argument('--first', type=number(int, 1, 4096), default=4, metavar='N',
                            help='robots that the search begins with (default: 4)')
        parser.add_argument('--resolution', type=number(int, 1, 4096), default=1, metavar='N',
                            help='how exactly the number is found (default: 1)')
    for parser in (capacity, sweep):
        parser.add_argument('--modes', type=listed(MODES), metavar='MODE,...',
                            help=f'of {", ".join(MODES)}; default: all that this machine allows')
        parser.add_argument('--policy', choices=get_args(Policy), default='earliest_slo_first',
                            help="which model's queue comes next (default: earliest_slo_first)")
        parser.add_argument('--ros', type=number(int, 1, 4096), metavar='N', help='drive a whole '
                            'factory instead, up to N robots in processes of their own over ROS; '
                            f'modes: {", ".join(ROS_MODES)}')
    sweep.add_argument('--robots', type=numbers, default=(), metavar='N,...',
                       help='numbers of robots; default: around what the first mode sustains')
    colocate.add_argument('--models', type=architectures, default='pi0*4', metavar='NAME*N,...',
                          help='models that share the device, those of one architecture with '
                          'other weights (default: pi0*4)')
    colocate.add_argument('--mode', choices=MODES, default='lockstep',
                          help='how stages follow each other (default: lockstep)')
    colocate.add_argument('--policies', type=listed(get_args(Policy)), metavar='POLICY,...',
                          default=get_args(Policy), help='default: all')
    colocate.add_argument('--deadlines', type=listed(DEADLINES), default=DEADLINES,
                          metavar='KIND,...', help='same: all the longest; different: their own, '
                          'or from that to twice as long (default: both)')
    ablation.add_argument('--repeats', type=number(int, 1, 10_000), default=30, metavar='N',
                          help='timed locksteps of each kind (default: 30)')
    for parser in (capacity, sweep, colocate, ablation):
        parser.add_argument('--json', type=output, metavar='FILE',
                            help='write everything measured there, after every row')
        parser.add_argument('--plots', metavar='FOLDER', help='draw plots there at the end')

    add_manage(kinds, number, output)
    add_place(kinds, number, output)

    plot = kinds.add_parser('plot', help='draw plots of a file that --json has written')
    plot.add_argument('file', metavar='FILE.json')
    plot.add_argument('--plots', metavar='FOLDER', default='.',
                      help='where to (default: the working directory)')


def add_manage(kinds: Any, number: Callable[..., Reader], output: Reader) -> None:
    """Add what the manager's plans are measured on."""
    manage = kinds.add_parser(
        'manage', help="measure the manager's plans: how good, how soon, how much of it proven")
    manage.add_argument('--sizes', type=sizes, default='8x4x64,16x16x400,32x64x2000',
                        metavar='MODELSxSERVERSxROBOTS,...', help='(default: %(default)s)')
    manage.add_argument('--kinds', type=listed(FACTORIES), default=FACTORIES, metavar='KIND,...',
                        help=f'of {", ".join(FACTORIES)} (default: all)')
    manage.add_argument('--seeds', type=number(int, 1, 1000), default=3, metavar='N',
                        help='factories of each size and kind (default: 3)')
    manage.add_argument('--seconds', type=number(float, 0.01, 86_400), metavar='S',
                        help='to plan one (default: 10, for the largest 20)')
    manage.add_argument('--changes', type=number(int, 0, 1000), default=10, metavar='N',
                        help='robots that come or go afterwards, one by one (default: 10)')
    manage.add_argument('--json', type=output, metavar='FILE',
                        help='write everything measured there, after every row')
    manage.add_argument('--record', type=output, metavar='FILE',
                        help='measure nothing: search long (--seconds, default: 120) for the '
                        'best objectives and write them there, with those known')


def add_place(kinds: Any, number: Callable[..., Reader], output: Reader) -> None:
    """Add how a factory's robots are divided and served."""
    place = kinds.add_parser(
        'place', help="serve a factory's robots where the manager places them, and where simple "
        'ways do')
    place.add_argument('factory', metavar='FACTORY.yaml')
    place.add_argument('--fill', type=several(number(float, 0.01, 1)), default='0.9',
                       metavar='PART,...',
                       help='of what the servers sustain together (default: %(default)s)')
    place.add_argument('--draws', type=number(int, 1, 1000), default=1, metavar='N',
                       help='populations of each part (default: 1)')
    add_times(place)
    place.add_argument('--in-turn', metavar='DEVICE', help='run the servers one after the other '
                       'on this device, as if each had one of its own')
    add_epochs(place, number)
    place.add_argument('--seed', type=number(int, 0, 2**31), default=0, metavar='N',
                       help='of phases and pictures (default: 0)')
    place.add_argument('--json', type=output, metavar='FILE',
                       help='write everything measured there, after every row')


def add_times(parser: argparse.ArgumentParser) -> None:
    """Add what the stages of simulated servers take."""
    parser.add_argument('--times', metavar='FILE', help='simulate servers on virtual time, whose '
                        'stages take what this file says (robion simulate); needs no GPU')


def add_device(parser: argparse.ArgumentParser, number: Callable[..., Reader]) -> None:
    """Add what is served and where."""
    parser.add_argument('--device', default='cuda:0', help='cpu or cuda:N (default: cuda:0); '
                        'with --ros several, with commas between: a server for each')
    parser.add_argument('--max-batch', type=int, default=2, metavar='N',
                        help='most requests of one stage, a power of two (default: 2)')
    parser.add_argument('--cameras', type=number(int, 1, 16), default=3, metavar='N',
                        help='of a robot (default: 3)')
    parser.add_argument('--joints', type=number(int, 1, 32), default=7, metavar='N',
                        help='of a robot (default: 7)')
    parser.add_argument('--seed', type=number(int, 0, 2**31), default=0, metavar='N',
                        help='of weights, phases, pictures and network (default: 0)')


def add_traffic(parser: argparse.ArgumentParser, number: Callable[..., Reader]) -> None:
    """Add who asks how often, and what is good enough."""
    parser.add_argument('--rate', type=number(float, 0.01, 1000), default=Traffic().rate,
                        metavar='HZ', help='requests per second of a robot (default: %(default)g)')
    add_epochs(parser, number)
    parser.add_argument('--slo', type=deadline, action='append', default=[], metavar='[NAME=]MS',
                        help="deadline, of one model or all; default: the paper's")
    parser.add_argument('--network', default='none', metavar='NAME|FILE',
                        help='delays and losses between robots and server: none, wifi7, cloud '
                        'or a YAML file (default: none)')
    parser.add_argument('--image', type=size, default=(224, 224), metavar='WxH',
                        help="of the robots' pictures (default: 224x224)")


def add_epochs(parser: argparse.ArgumentParser, number: Callable[..., Reader]) -> None:
    """Add how long is measured, and what is good enough."""
    usual = Traffic()
    parser.add_argument('--epochs', type=number(int, 1, 1000), default=usual.epochs, metavar='N',
                        help='runs of each number of robots (default: %(default)d)')
    parser.add_argument('--seconds', type=number(float, 0.01, 86_400), default=usual.seconds,
                        metavar='S', help='counted in each epoch (default: %(default)g)')
    parser.add_argument('--lead', type=number(float, 0, 3600), default=usual.lead, metavar='S',
                        help='before those, not counted (default: %(default)g)')
    parser.add_argument('--target', type=number(float, 0, 1), default=usual.target, metavar='PART',
                        help='of the requests that must be met (default: %(default)g)')


def add_serving(parser: argparse.ArgumentParser, number: Callable[..., Reader]) -> None:
    """Add how it is served."""
    parser.add_argument('--late', choices=get_args(LateRule), default='serve',
                        help='what becomes of requests that cannot be met (default: serve)')
    parser.add_argument('--slots', type=number(int, 0, 256), default=0, metavar='N',
                        help='stepwise: rows that denoise together (default: twice --max-batch)')
    parser.add_argument('--buffer', type=number(int, 0, 4096), default=0, metavar='N',
                        help='stepwise: contexts between stages (default: twice --max-batch)')
    parser.add_argument('--second-device', default='', metavar='DEVICE',
                        help='split: where the ADiT stage runs (default: another GPU, if any)')


def listed(choices: tuple[str, ...]) -> Reader:
    """Return a reader of some of choices, with commas between."""
    def read(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(text.split(',')))
        for word in found:
            if word not in choices:
                raise argparse.ArgumentTypeError(
                    f'{word!r} is not one of {", ".join(choices)}')
        return found
    return read


def several(read: Reader) -> Reader:
    """Return a reader of what read reads, with commas between."""
    return lambda text: tuple(read(word) for word in text.split(','))


def numbers(text: str) -> tuple[int, ...]:
    """Read numbers of robots."""
    try:
        found = tuple(sorted({int(word) for word in text.split(',')}))
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is not a list like 4,8,16') from None
    if found[0] < 1:
        raise argparse.ArgumentTypeError(f'{found[0]} is no number of robots')
    return found


def architectures(text: str) -> tuple[str, ...]:
    """Read architectures, each with how many models it has."""
    found: list[str] = []
    for word in text.split(','):
        name, _, count = word.partition('*')
        if name not in ARCHITECTURES or not (count or '1').isdigit() or not int(count or 1):
            raise argparse.ArgumentTypeError(
                f'{word!r} is not like pi0 or pi0*4, with one of {", ".join(ARCHITECTURES)}')
        found += [name] * int(count or 1)
    return tuple(found)


def deadline(text: str) -> tuple[str, float]:
    """Read a deadline in ms, of a model if it is named; return it in s."""
    name, _, value = text.rpartition('=')
    try:
        seconds = float(value) / 1e3
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is not like 156 or pi0=156') from None
    if not 0.001 <= seconds <= 60:
        raise argparse.ArgumentTypeError(f'is {value}, must be from 1 to 60000')
    return name, seconds


def sizes(text: str) -> tuple[Size, ...]:
    """Read sizes of factories."""
    found = []
    for word in text.split(','):
        parts = word.split('x')
        if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts) or int(
                parts[2]) < int(parts[0]):
            raise argparse.ArgumentTypeError(f'{word!r} is not like 8x4x64: models, servers and '
                                             'robots, of each model one or more')
        found.append(Size(*map(int, parts)))
    return tuple(found)


def size(text: str) -> tuple[int, int]:
    """Read the size of a picture; return width and height."""
    width, _, height = text.partition('x')
    if not (width.isdigit() and height.isdigit() and 1 <= int(width) <= 8192
            and 1 <= int(height) <= 8192):
        raise argparse.ArgumentTypeError(f'{text!r} is not like 640x480')
    return int(width), int(height)
