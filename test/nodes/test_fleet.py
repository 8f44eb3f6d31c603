# SPDX-License-Identifier: Apache-2.0
"""What the manager knows of the servers, from statuses alone."""

from collections.abc import Callable, Iterator
from threading import Thread, Timer
from time import monotonic

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import UInt64

from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes import absences
from robion_ros.nodes import fleet as module
from robion_ros.nodes.convert import to_duration
from robion_ros.nodes.fleet import ATTEMPTS, Fleet
from robion_ros.nodes.spin import Flag
from robion_ros.srv import AssignRobots

pytestmark = pytest.mark.ros

ACTIVE = ServerStatus.ACTIVE
Clock = Callable[[float], None]


@pytest.fixture
def node(own_domain: None) -> Iterator[Node]:
    rclpy.init()
    node = Node('manager')
    yield node
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def fleet(node: Node) -> Fleet:
    return Fleet(node, ['s', 't'], 1.0, 0.2)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that sets the fleet's clock, s."""
    return lambda now: monkeypatch.setattr(module, 'monotonic', lambda: now)


def robot(name: str, **values: object) -> RobotStatus:
    return RobotStatus(robot=name, **{'model': 'a', 'state': RobotStatus.ACTIVE, **values})


def test_a_server_is_alive_while_it_serves_and_is_heard(fleet: Fleet, at: Clock) -> None:
    at(10.0)
    fleet._on_status('s', ServerStatus(state=ACTIVE))
    fleet._on_status('t', ServerStatus(state=ServerStatus.INACTIVE))
    assert set(fleet.alive()) == {'s'}
    at(11.0)
    assert set(fleet.alive()) == {'s'} and not fleet.alive(since=10.5)
    at(11.1)
    assert not fleet.alive()
    fleet._on_status('t', ServerStatus(state=ACTIVE))
    assert set(fleet.alive()) == {'t'}
    fleet._on_status('t', ServerStatus(state=ServerStatus.UNCONFIGURED))
    assert not fleet.alive()


def test_a_robot_is_known_by_the_server_that_got_farthest(fleet: Fleet) -> None:
    fleet._on_status('s', ServerStatus(robots=[robot('r1', last_request=5), robot('r2')]))
    fleet._on_status('t', ServerStatus(robots=[robot('r1', last_request=3)]))
    assert {name: status.last_request for name, status in fleet.robots().items()} == {
        'r1': 5, 'r2': 0}
    fleet._on_status('s', ServerStatus(robots=[robot('r1', last_request=5, prompt='go')]))
    assert fleet.robots()['r1'].prompt == 'go'
    # A new process knows nothing; what the one before said stays.
    fleet._on_status('s', ServerStatus(incarnation=1))
    assert fleet.robots()['r1'].last_request == 5


def test_epoch_is_the_greatest_that_was_heard(fleet: Fleet) -> None:
    assert fleet.epoch() == 0
    fleet._on_status('s', ServerStatus(epoch=4))
    fleet._on_status('t', ServerStatus(epoch=9))
    assert fleet.epoch() == 9


@pytest.mark.parametrize(('ready', 'missing'), [
    ([('t', 'r1'), ('t', 'r2')], {}),
    ([('t', 'r1')], {'r2': 't'}),
    ([('s', 'r1'), ('s', 'r2')], {'r1': 't', 'r2': 't'}),
], ids=['all', 'one', 'elsewhere'])
def test_robots_that_are_not_ready_are_returned(fleet: Fleet, ready, missing) -> None:
    for server in 'st':
        fleet._on_status(server, ServerStatus(state=ACTIVE, robots=[
            robot(name, ready=(server, name) in ready) for name in ('r1', 'r2')]))
    assert fleet.wait_ready({'r1': 't', 'r2': 't'}, {}, 'st', 0.05) == (missing, set(), False)


def test_ready_before_the_server_was_told_does_not_count(fleet: Fleet) -> None:
    for epoch, missing in ((6, {'r1': 's'}), (7, {})):
        fleet._on_status('s', ServerStatus(state=ACTIVE, epoch=epoch,
                                           robots=[robot('r1', ready=True)]))
        assert fleet.wait_ready({'r1': 's'}, {'s': 7}, 's', 0.05).unready == missing


def test_robot_that_becomes_ready_ends_the_wait(fleet: Fleet) -> None:
    begin = monotonic()
    fleet._server_timeout = 60.0
    fleet._on_status('s', ServerStatus(state=ACTIVE))
    thread = Thread(target=fleet._on_status, args=(
        's', ServerStatus(state=ACTIVE, robots=[robot('r1', ready=True)])))
    thread.start()
    assert fleet.wait_ready({'r1': 's'}, {}, 's', 60.0) == ({}, set(), False)
    assert monotonic() - begin < 30.0
    thread.join()


def test_servers_are_called_until_they_answer_or_are_given_up(fleet: Fleet, node: Node) -> None:
    calls = []

    def answer(request: AssignRobots.Request,
               response: AssignRobots.Response) -> AssignRobots.Response:
        calls.append(request.epoch)
        response.success = True
        return response

    other = Node('s')
    other.create_service(AssignRobots, '~/assign', answer)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    executor.add_node(other)
    thread = Thread(target=executor.spin)
    thread.start()
    try:
        assert fleet._clients['s'].wait_for_service(30.0)
        for name in 'st':
            fleet._on_status(name, ServerStatus(state=ACTIVE))
        fleet._server_timeout = 60.0
        sent = []
        silent = fleet._clients['t']
        send = silent.call_async
        silent.call_async = lambda request: sent.append(request) or send(request)
        answers = fleet.call_all({'s': AssignRobots.Request(epoch=3),
                                  't': AssignRobots.Request(epoch=4)})
        assert answers['s'].success and answers['t'] is None
        assert set(calls) == {3} and len(sent) == ATTEMPTS
        # One that is dead by then is not called again.
        fleet._on_status('t', ServerStatus(state=ServerStatus.INACTIVE))
        sent.clear()
        assert fleet.call_all({'t': AssignRobots.Request(epoch=5)}) == {'t': None}
        assert len(sent) == 1
        assert not any(client._pending_requests for client in fleet._clients.values())
        assert fleet.call_all({}) == {}
    finally:
        executor.shutdown()
        thread.join()
        other.destroy_node()


def test_nobody_waits_for_a_server_that_dies_meanwhile(fleet: Fleet) -> None:
    fleet._server_timeout = 0.3
    fleet._call_timeout = 60.0
    begin = monotonic()
    fleet._on_status('s', ServerStatus(state=ACTIVE))
    assert fleet.wait_ready({'r1': 's'}, {}, 's', 60.0) == ({'r1': 's'}, {'s'}, True)
    fleet._on_status('s', ServerStatus(state=ACTIVE))
    assert fleet.call_all({'s': AssignRobots.Request(epoch=3)}) == {'s': None}
    assert fleet.call_all({'s': AssignRobots.Request(epoch=3)}) == {'s': None}  # It is dead.
    assert monotonic() - begin < 30.0


def test_robots_of_a_lost_server_do_not_wait_until_others_are_ready(fleet: Fleet) -> None:
    fleet._server_timeout = 0.3
    begin = monotonic()
    for name in 'st':
        fleet._on_status(name, ServerStatus(state=ACTIVE))
    fleet._on_beat('t', UInt64())
    fleet._on_status('s', ServerStatus(state=ServerStatus.INACTIVE))
    assert fleet.wait_ready({'r1': 't'}, {}, 'st', 60.0) == ({'r1': 't'}, {'s'}, True)
    assert monotonic() - begin < 30.0


def test_the_end_of_the_process_ends_waiting_but_not_what_was_begun(
        fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Flag()
    monkeypatch.setattr(module, 'STOPPED', stopped)
    fleet._server_timeout = fleet._call_timeout = 60.0
    fleet._on_status('s', ServerStatus(state=ACTIVE))
    stopped.set()
    assert fleet.wait_ready({'r1': 's'}, {}, 's', 60.0) == ({'r1': 's'}, set(), True)
    answer = AssignRobots.Response(success=True)
    future = Future()
    fleet._clients['s'].call_async = lambda request: future
    Timer(0.2, future.set_result, [answer]).start()
    assert fleet.call_all({'s': AssignRobots.Request(epoch=3)}) == {'s': answer}


def test_a_server_is_alive_while_its_heart_beats_in_the_term_that_it_speaks_of(
        fleet: Fleet, at: Clock) -> None:
    at(10.0)
    fleet._on_status('s', ServerStatus(state=ACTIVE, term=7))
    fleet._on_beat('s', UInt64(data=7))
    at(11.5)
    assert not fleet.alive()
    fleet._on_beat('s', UInt64(data=7))
    assert set(fleet.alive()) == {'s'}
    # It was held up: what it said before is not so any more.
    fleet._on_beat('s', UInt64(data=8))
    assert not fleet.alive()
    fleet._on_status('s', ServerStatus(state=ACTIVE, term=8))
    assert fleet.alive()['s'].term == 8


def test_a_server_that_goes_by_a_longer_timeout_is_waited_for_and_named(
        fleet: Fleet, at: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    at(10.0)
    fleet._on_status('s', ServerStatus(state=ACTIVE, server_timeout=to_duration(1.0)))
    assert (fleet.disagreement(), fleet.timeout) == ('', 1.0)
    fleet._on_status('s', ServerStatus(state=ACTIVE, server_timeout=to_duration(2.5)))
    fleet._on_status('t', ServerStatus(state=ACTIVE, server_timeout=to_duration(0.4)))
    assert fleet.timeout == 2.5
    for _ in range(3):
        said = fleet.disagreement()
    assert 's has manager.server_timeout 2.5 s, this manager 1 s' in said
    assert 't has manager.server_timeout 0.4 s, this manager 1 s' in said
    assert capfd.readouterr().err.count('s has manager.server_timeout') == 1, 'it is said once'
    at(12.4)
    assert set(fleet.alive()) == {'s'}
    assert 't has' not in fleet.disagreement()
    at(12.6)
    assert not fleet.alive()


def test_robots_that_are_gone_for_long_are_forgotten_and_their_numbers_still_grow(
        fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(absences, 'monotonic', lambda: now)
    monkeypatch.setattr(absences, 'time_ns', lambda: int(1e9 * (1_700_000_000 + now)))

    def first() -> int:
        """Return the number that the requests of a robot that nobody knows begin with."""
        return int(1e3 * (1_700_000_000 + now))
    last = dict.fromkeys(['stays', 'gone', 'ahead'], first())
    last['ahead'] += int(1e10)  # Whatever clock that was counted by.
    fleet._on_status('s', ServerStatus(robots=[
        robot(name, last_request=number) for name, number in last.items()]))
    fleet.forget({'stays', 'gone', 'ahead'})
    for now in range(0, 2 * int(absences.FORGET_TIME), 300):
        fleet.forget({'stays', 'gone'} if now < 600 else {'stays'})
        for name, number in last.items():
            known = fleet.robots().get(name)
            assert (known.last_request if known else first()) >= number
        assert ('gone' in fleet.robots()) == (now <= 600 + absences.FORGET_TIME), now
    assert set(fleet.robots()) == {'stays', 'ahead'}


def test_names_that_come_and_go_do_not_add_up(fleet: Fleet,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(absences, 'monotonic', lambda: now)
    monkeypatch.setattr(absences, 'time_ns', lambda: int(1e9 * (1_700_000_000 + now)))
    most = 0
    for number in range(1000):
        now = 0.5 * absences.FORGET_TIME * number
        fleet._on_status('s', ServerStatus(robots=[robot(f'r{number}', last_request=5)]))
        fleet.forget({f'r{number}'})
        most = max(most, len(fleet.robots()))
    assert most <= 4
