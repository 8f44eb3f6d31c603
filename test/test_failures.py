# SPDX-License-Identifier: Apache-2.0
"""
Real processes that are killed, stopped and started again: what the others make of it.

How long that takes is for benchmarks/failover.py: a loaded machine must not fail these tests.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
import os
from pathlib import Path
import signal
from time import sleep

import pytest

from robion_ros.architectures import ARCHITECTURES
from robion_ros.factory_file import load
from robion_ros.processes import environment, factory_processes, parameter

from .conftest import use_domain
from .factories import Factory, PATIENCE

pytestmark = pytest.mark.ros

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


class Fragile(Factory):
    """A factory whose processes are killed, stopped and started again."""

    def __init__(self, path: Path, exits: ExitStack) -> None:
        config = load(path)
        super().__init__(config.servers, ROBOTS, 3, exits)
        *others, self._simulated = factory_processes(config, path, 'info', None)
        self.supervisor = self.start(replace(process, arguments=(*process.arguments, *parameter(
            'hang_time', HANG_TIME))) if process.executable == 'server' else process
            for process in others)
        self.folder = path.parent
        self.start_robots()

    def start_robots(self) -> None:
        self.robots = self.start([self._simulated])

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.supervisor.pids[name], number)

    def wait_for_plan(self) -> None:
        """Wait until both servers have robots, as planned, and all are answered."""
        self.until(lambda: sorted(self.seats) == sorted(ROBOTS)
                   and set(self.seats.values()) == set(SERVERS), 'both servers have robots')
        self.wait_for_answers()


@pytest.fixture(scope='module')
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fragile]:
    path = tmp_path_factory.mktemp('factory') / 'factory.yaml'
    path.write_text(FACTORY)
    path.with_name('hanging.py').write_text(HANGING)
    path.with_name('sitecustomize.py').write_text(REGISTER)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as exits:
        use_domain(patch)
        for name, value in environment().items():
            patch.setenv(name, value)
        patch.setenv('PYTHONPATH', str(path.parent))
        patch.setitem(ARCHITECTURES, 'hanging', 'hanging')
        yield Fragile(path, exits)


@pytest.fixture
def factory(running: Fragile) -> Iterator[Fragile]:
    """Return a factory at work; whatever happens, no chunk may be wrong or come twice."""
    running.wait_for_plan()
    yield running
    running.wait_for_plan()
    running.check()


def test_server_that_cannot_configure_says_why_and_the_others_serve(factory: Fragile) -> None:
    factory.until(lambda: factory.server('broken').state == 'unconfigured', 'it has given up')
    assert any('cannot configure' in line and 'nowhere' in line for line in factory.lines)
    assert 'broken' in factory.supervisor.pids


def test_robots_of_a_killed_server_are_served_elsewhere_until_it_is_back(
        factory: Fragile) -> None:
    before = factory.server('server_0').incarnation
    factory.send('server_0', signal.SIGKILL)
    factory.until(lambda: set(factory.seats.values()) == {'server_1'}, 'it is missed')
    factory.wait_for_answers()
    factory.until(lambda: factory.server('server_0').incarnation != before, 'it is back')


def test_server_that_hangs_is_replaced_and_answers_nothing_of_before(factory: Fragile) -> None:
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


def test_server_whose_device_hangs_says_so_and_starts_again(factory: Fragile) -> None:
    said, before = len(factory.lines), factory.server('server_0').incarnation
    (factory.folder / 'hang_server_0').touch()
    factory.until(lambda: set(factory.seats.values()) == {'server_1'}, 'it is missed')
    factory.wait_for_answers()
    factory.until(lambda: factory.server('server_0').incarnation != before, 'it is back')
    lines = [line for line in factory.lines[said:] if 'server_0' in line]
    assert any('the engine hangs' in line for line in lines)
    assert any('server_0 ended with exit code 1; starts again' in line for line in lines)


def test_servers_go_on_while_the_manager_is_dead_and_the_next_one_moves_nothing(
        factory: Fragile) -> None:
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


def test_manager_that_hangs_takes_nobody_for_dead(factory: Fragile) -> None:
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
        factory: Fragile) -> None:
    seats, said = factory.seats, len(factory.lines)
    os.kill(factory.robots.pids['simulated_robots'], signal.SIGKILL)
    factory.until(lambda: factory.robots.wait(0), 'they are gone')
    factory.until(lambda: any('no message for' in line for line in factory.lines[said:]),
                  'that is said')
    factory.observer._reports.clear()
    factory.start_robots()
    factory.wait_for_answers()
    assert factory.seats == seats
