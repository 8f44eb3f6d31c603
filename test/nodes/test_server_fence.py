# SPDX-License-Identifier: Apache-2.0
"""A server that was held up answers nothing of before, and serves again when it is told to."""

from collections.abc import Callable
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
import pytest
from std_msgs.msg import UInt64

from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes import heart, loading, qos
from robion_ros.srv import AssignRobots

pytestmark = pytest.mark.ros

Make = Callable[..., Any]
CODES = AssignRobots.Response


@pytest.fixture
def server(world: Any, robot: Make, write_factory: Any) -> SimpleNamespace:
    """Return a server whose heart can be stopped, and a robot that it serves."""
    world.config.write_text(world.config.read_text() + 'manager: {server_timeout: 2.0}\n')
    node = world.server()
    held = Event()
    beat = node._lease.beat
    # As SIGSTOP does: no beat leaves until the process goes on.
    node._lease.beat = lambda: (held.wait(), beat())[1]
    held.set()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    return SimpleNamespace(node=node, held=held, arm=arm, term=node._lease.term)


def stop(world: Any, server: SimpleNamespace) -> None:
    """Hold the heart up for longer than a manager waits."""
    server.held.clear()
    world.until(lambda: not server.node._lease.covers(server.node._lease._since + 1e-3))


def begin(world: Any, transition: str) -> Callable[[], bool]:
    """Call for a transition; return what says whether it was answered."""
    client = world.node.create_client(ChangeState, 'server_0/change_state')
    world.until(client.service_is_ready)
    request = ChangeState.Request(transition=Transition(label=transition))
    done: Callable[[], bool] = client.call_async(request).done
    return done


def test_what_was_asked_before_is_not_answered_after(world: Any, server: SimpleNamespace,
                                                     fakes: Any, kit: SimpleNamespace) -> None:
    world.hold(server.arm, fakes, 7)
    before = world.robot_status().cancelled
    stop(world, server)
    fakes['pick'][0].gate.set()  # The engine goes on sooner than the heart.
    world.until(lambda: world.robot_status().cancelled == before + 1)
    server.held.set()
    world.until(lambda: world.statuses['server_0'].term > server.term)
    world.until(lambda: not world.statuses['server_0'].robots)
    server.arm.observe(8)
    assert not kit.holds(lambda: server.arm.chunks, kit.GRACE)


def test_calls_of_before_are_refused_and_those_of_after_are_taken(
        world: Any, server: SimpleNamespace, kit: SimpleNamespace) -> None:
    number = world.robot_status().last_request
    stop(world, server)
    server.held.set()
    world.until(lambda: world.statuses['server_0'].term > server.term)

    def assign(epoch: int, term: int) -> AssignRobots.Response:
        return world.call(AssignRobots, 'server_0/assign', AssignRobots.Request(
            epoch=epoch, term=term, robots=[kit.place('r')]))
    answer = assign(2, server.term)
    assert (answer.success, answer.error_code) == (False, CODES.OLD_TERM)
    assert world.robot_status().state != RobotStatus.ACTIVE
    assert assign(3, world.statuses['server_0'].term).success
    world.ready(server.arm)
    server.arm.observe(9)
    world.until(lambda: server.arm.chunks)
    assert server.arm.chunks[0].request > number


def test_a_call_that_comes_before_the_timer_lets_go_as_well(
        world: Any, server: SimpleNamespace, fakes: Any,
        capfd: pytest.CaptureFixture[str]) -> None:
    """What waits in the engine is cancelled, and it is said, whichever of them comes first."""
    node, done, counters = server.node, Event(), server.node._memories['r'].counters
    world.hold(server.arm, fakes, 7)
    before = counters.cancelled
    stop(world, server)

    def in_one_turn() -> None:
        turn.cancel()
        server.held.set()
        while node._lease.term == server.term:
            sleep(0.01)
        node._on_assign(AssignRobots.Request(epoch=2, term=server.term), AssignRobots.Response())
        done.set()
    turn = node.create_timer(0.001, in_one_turn)
    world.until(done.is_set)
    fakes['pick'][0].gate.set()
    world.until(lambda: world.statuses['server_0'].term > server.term)
    world.until(lambda: counters.cancelled == before + 1)
    assert 'held up for' in capfd.readouterr().err


def test_executor_that_hangs_stops_the_heart(world: Any, robot: Make,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heart, 'HANG_TIME', 0.3)
    node = world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    term, hangs = node._lease.term, Event()
    node.create_timer(0.01, lambda: hangs.wait(20.0))
    world.until(lambda: not node._lease.covers(node._lease._since + 1e-3), 'taken as replaced')
    hangs.set()
    world.until(lambda: world.statuses['server_0'].term > term)
    world.until(lambda: not world.statuses['server_0'].robots)


def test_heart_beats_while_models_are_loaded(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    go_on, load = Event(), loading.load

    def slow_load(*arguments: Any) -> Any:
        go_on.wait(20.0)
        return load(*arguments)
    monkeypatch.setattr(loading, 'load', slow_load)
    world.node.create_subscription(UInt64, 'server_0/heartbeat',
                                   lambda beat: beats.append(beat.data), qos.HEARTBEAT_QOS)
    world.server(autostart=False)
    done = begin(world, 'configure')
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.CONFIGURING)
    count = len(beats)
    world.until(lambda: len(beats) > count + 20)
    assert not done()
    go_on.set()
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.INACTIVE)
    assert len(set(beats)) == 1


@pytest.mark.parametrize(('transition', 'state'), [
    ('deactivate', ServerStatus.INACTIVE), ('shutdown', ServerStatus.UNCONFIGURED)])
def test_robots_are_let_go_while_the_rest_is_drained(world: Any, server: SimpleNamespace,
                                                     fakes: Any, transition: str,
                                                     state: int) -> None:
    """Whoever waits for the end of a drain waits for seconds."""
    world.hold(server.arm, fakes, 7)
    done = begin(world, transition)
    world.until(lambda: world.statuses['server_0'].state == state)
    assert not done()
    fakes['pick'][0].gate.set()
    world.until(done)
    world.until(lambda: server.arm.chunks)
    world.until(lambda: world.robot_status().state in (RobotStatus.LEAVING, 0))
