# SPDX-License-Identifier: Apache-2.0
"""
Real processes that are killed, stopped and started again: what the others make of it.

How long that takes is for benchmarks/failover.py: a loaded machine must not fail these tests.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
import os
from pathlib import Path
import signal
from time import monotonic, sleep

import pytest

from robion_ros.architectures import ARCHITECTURES
from robion_ros.commands.domain import claim_domain
from robion_ros.factory_file import load
from robion_ros.nodes.observer import Observer
from robion_ros.observed import Report, Server
from robion_ros.processes import environment, factory_processes, parameter
from robion_ros.supervisor import Supervisor

pytestmark = pytest.mark.ros

PATIENCE = 90.0
FACTORY = """
models:
  pick: &arm
    architecture: hanging
    cameras: {front: raw}
    joints: [joint_1, joint_2]
    prompt: pick
    rate: 5.0
    slo: 2.0
    capacity: 8
  place: *arm
  lost: {<<: *arm, checkpoint: nowhere}
servers:
  server_0: {models: [pick, place]}
  server_1: {models: [pick, place]}
  broken: {models: [lost]}
robots: {pick: 2, place: 2}
manager: {server_timeout: 1.0}
"""
HANGING = """
from pathlib import Path
import sys
from threading import Event
from robion_ros.models import tiny
from robion_ros.models.tiny import blank, configure, inspect
server = next(word.partition(':=')[2] for word in sys.argv if word.startswith('__node:='))
file = Path(__file__).with_name(f'hang_{server}')
def load(*words):
    model = tiny.load(*words)
    vlm = model.vlm
    def hang(inputs):
        if file.exists():
            file.unlink()
            Event().wait()
        return vlm(inputs)
    model.vlm = hang
    return model
"""
"""The tiny model, whose device hangs for good, once, at the server that a file names."""
REGISTER = """
from robion_ros.architectures import ARCHITECTURES
ARCHITECTURES['hanging'] = 'hanging'
"""
HANG_TIME = 2.0
ROBOTS = 'pick_1', 'pick_2', 'place_1', 'place_2'
SERVERS = 'server_0', 'server_1'


class Factory:
    """Running processes, and what an observer sees of them."""

    def __init__(self, path: Path, exits: ExitStack) -> None:
        self.lines: list[str] = []
        config = load(path)
        *others, self._robots = factory_processes(config, path, 'info', None)
        others = [replace(process, arguments=(*process.arguments, *parameter(
            'hang_time', HANG_TIME))) if process.executable == 'server' else process
            for process in others]
        self.supervisor = exits.enter_context(Supervisor(others, say=self.lines.append))
        self._exits = exits
        self.folder = path.parent
        self.observer = Observer(config.servers, 'manager', 'simulated_robots')
        exits.callback(self.observer.close)
        self.start_robots()

    def start_robots(self) -> None:
        self.robots = self._exits.enter_context(Supervisor([self._robots],
                                                           say=self.lines.append))

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = monotonic() + PATIENCE
        while not condition():
            assert monotonic() < end, '\n'.join([*self.lines[-40:], f'not so: {what}'])
            sleep(0.05)

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.supervisor.pids[name], number)

    @property
    def seats(self) -> Mapping[str, str]:
        return {robot: seat.server for robot, seat in self.observer.snapshot().seats.items()}

    @property
    def reports(self) -> Mapping[str, Report]:
        return self.observer.snapshot().reports

    def server(self, name: str) -> Server:
        return self.observer.snapshot().servers[name]

    def wait_for_answers(self) -> None:
        """Wait until every robot has got three more chunks."""
        before = {robot: report.answered for robot, report in self.reports.items()}
        self.until(lambda: all(robot in self.reports and self.reports[robot].answered
                               >= before.get(robot, 0) + 3 for robot in ROBOTS),
                   'every robot is answered')

    def wait_for_plan(self) -> None:
        """Wait until both servers have robots, as planned, and all are answered."""
        self.until(lambda: sorted(self.seats) == sorted(ROBOTS)
                   and set(self.seats.values()) == set(SERVERS), 'both servers have robots')
        self.wait_for_answers()


@pytest.fixture(scope='module')
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    path = tmp_path_factory.mktemp('factory') / 'factory.yaml'
    path.write_text(FACTORY)
    path.with_name('hanging.py').write_text(HANGING)
    path.with_name('sitecustomize.py').write_text(REGISTER)
    environ: dict[str, str] = {}
    claim_domain(environ)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as exits:
        for name, value in (environment() | environ).items():
            patch.setenv(name, value)
        patch.setenv('PYTHONPATH', str(path.parent))
        patch.setitem(ARCHITECTURES, 'hanging', 'hanging')
        yield Factory(path, exits)


@pytest.fixture
def factory(running: Factory) -> Iterator[Factory]:
    """Return a factory at work; whatever happens, no chunk may be wrong or come twice."""
    running.wait_for_plan()
    yield running
    running.wait_for_plan()
    for robot in ROBOTS:
        report = running.reports[robot]
        assert (report.duplicated, report.wrong) == (0, 0), '\n'.join(running.lines[-60:])


def test_server_that_cannot_configure_says_why_and_the_others_serve(factory: Factory) -> None:
    factory.until(lambda: factory.server('broken').state == 'unconfigured', 'it has given up')
    assert any('cannot configure' in line and 'nowhere' in line for line in factory.lines)
    assert 'broken' in factory.supervisor.pids


def test_robots_of_a_killed_server_are_served_elsewhere_until_it_is_back(
        factory: Factory) -> None:
    before = factory.server('server_0').incarnation
    factory.send('server_0', signal.SIGKILL)
    factory.until(lambda: set(factory.seats.values()) == {'server_1'}, 'it is missed')
    factory.wait_for_answers()
    factory.until(lambda: factory.server('server_0').incarnation != before, 'it is back')


def test_server_that_hangs_is_replaced_and_answers_nothing_of_before(factory: Factory) -> None:
    said = len(factory.lines)
    factory.send('server_1', signal.SIGSTOP)
    try:
        factory.until(lambda: set(factory.seats.values()) == {'server_0'}, 'it is missed')
        factory.wait_for_answers()
        sleep(HANG_TIME)
    finally:
        factory.send('server_1', signal.SIGCONT)
    factory.until(lambda: any('held up for' in line for line in factory.lines[said:]),
                  'it knows')
    factory.wait_for_plan()
    assert not any('hangs' in line for line in factory.lines[said:]), 'it was only stopped'


def test_server_whose_device_hangs_says_so_and_starts_again(factory: Factory) -> None:
    said, before = len(factory.lines), factory.server('server_0').incarnation
    (factory.folder / 'hang_server_0').touch()
    factory.until(lambda: set(factory.seats.values()) == {'server_1'}, 'it is missed')
    factory.wait_for_answers()
    factory.until(lambda: factory.server('server_0').incarnation != before, 'it is back')
    lines = [line for line in factory.lines[said:] if 'server_0' in line]
    assert any('the engine hangs' in line for line in lines)
    assert any('server_0 ended with exit code 1; starts again' in line for line in lines)


def test_servers_go_on_while_the_manager_is_dead_and_the_next_one_moves_nothing(
        factory: Factory) -> None:
    seats, said = factory.seats, len(factory.lines)
    restarts = factory.supervisor.restarts['manager']
    factory.send('manager', signal.SIGKILL)
    factory.until(lambda: factory.supervisor.restarts['manager'] > restarts, 'it starts again')
    factory.wait_for_answers()
    factory.until(lambda: any('robots assigned' in line for line in factory.lines[said:]),
                  'it has planned')
    factory.wait_for_answers()
    assert factory.seats == seats
    assert not any('robots assigned' in line and ' 0 moved' not in line
                   for line in factory.lines[said:])


def test_manager_that_hangs_takes_nobody_for_dead(factory: Factory) -> None:
    seats, said = factory.seats, len(factory.lines)
    factory.send('manager', signal.SIGSTOP)
    try:
        sleep(2.5)  # More than twice what it waits for a server.
        factory.wait_for_answers()
    finally:
        factory.send('manager', signal.SIGCONT)
    factory.wait_for_answers()
    assert factory.observer.rebalance({}).result(PATIENCE).moved == 0
    assert factory.seats == seats
    assert not any('robots assigned' in line and ' 0 moved' not in line
                   for line in factory.lines[said:])


def test_robots_that_vanish_keep_their_place_and_are_answered_when_they_return(
        factory: Factory) -> None:
    seats, said = factory.seats, len(factory.lines)
    os.kill(factory.robots.pids['simulated_robots'], signal.SIGKILL)
    factory.until(lambda: factory.robots.wait(0), 'they are gone')
    factory.until(lambda: any('no message for' in line for line in factory.lines[said:]),
                  'that is said')
    factory.observer._reports.clear()
    factory.start_robots()
    factory.wait_for_answers()
    assert factory.seats == seats
