# SPDX-License-Identifier: Apache-2.0
"""A server that can serve no more says so and ends; a transition that fails says why."""

from collections.abc import Callable
import sys
from types import SimpleNamespace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
import pytest

from robion_ros.msg import ServerStatus

pytestmark = pytest.mark.ros

Make = Callable[..., Any]
NAME = 'robion: server_0'


def shown(world: Any) -> DiagnosticStatus:
    """Return what /diagnostics says of the server."""
    return world.diagnostics.get(NAME, DiagnosticStatus())


def fault(world: Any, kit: SimpleNamespace) -> str:
    """Wait until the node has ended by a fault that it has shown; return the fault."""
    assert kit.holds(lambda: world.faults, kit.TIMEOUT)
    text = str(world.faults.pop())
    assert kit.holds(lambda: shown(world).message == text, kit.TIMEOUT)
    assert shown(world).level == DiagnosticStatus.ERROR
    return text


def hang(world: Any, robot: Make, fakes: Any) -> None:
    """Let the engine begin a lockstep that does not end before the test."""
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    world.hold(arm, fakes)


def test_an_engine_that_hangs_is_a_fault_and_keeps_nobody_from_the_end(
        world: Any, robot: Make, fakes: Any, kit: SimpleNamespace) -> None:
    server = world.server(hang_time=1.0)
    hang(world, robot, fakes)
    assert 'the engine hangs, and its device with it' in fault(world, kit)
    world.end(server)
    assert server.exit_code == 1
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.UNCONFIGURED)


def test_cleanup_of_an_engine_that_hangs_ends_the_node(world: Any, robot: Make, fakes: Any,
                                                       kit: SimpleNamespace) -> None:
    server = world.server(hang_time=4.0, drain_timeout=0.1)
    hang(world, robot, fakes)
    assert world.change('deactivate')
    assert not world.change('cleanup')
    assert 'the engine hangs, and keeps what it has on its device' in fault(world, kit)
    assert server.exit_code == 1


def test_a_heart_that_cannot_beat_is_a_fault(world: Any, robot: Make, kit: SimpleNamespace,
                                             capfd: pytest.CaptureFixture[str]) -> None:
    server = world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    server._heart._publisher.publish = lambda beat: 1 // 0
    assert fault(world, kit) == ('the heart has stopped by a fault: ZeroDivisionError: integer '
                                 'division or modulo by zero; the process must be restarted')
    assert 'the heart has stopped by a fault' in capfd.readouterr().err
    assert kit.holds(lambda: not server._lease.covers(0.0), kit.TIMEOUT)


def broken(*words: Any) -> Any:
    raise OSError('the disk is gone')


@pytest.mark.parametrize(('before', 'transition', 'said'), [
    ((), 'configure', 'cannot configure: ModuleNotFoundError: '),
    (('configure',), 'activate', 'cannot activate: OSError: the disk is gone'),
    (('configure', 'activate'), 'deactivate', 'cannot deactivate: OSError: the disk is gone'),
    (('configure',), 'cleanup', 'cannot clean up: OSError: the disk is gone'),
    (('configure', 'activate'), 'shutdown', 'cannot clean up: OSError: the disk is gone'),
], ids=['configure', 'activate', 'deactivate', 'cleanup', 'shutdown'])
def test_a_transition_that_raises_says_why_and_leads_to_unconfigured(
        world: Any, robot: Make, monkeypatch: pytest.MonkeyPatch, kit: SimpleNamespace,
        capfd: pytest.CaptureFixture[str], before: tuple[str, ...], transition: str,
        said: str) -> None:
    server = world.server(autostart=False)
    for each in before:
        assert world.change(each)
    with monkeypatch.context() as patch:
        serving = server._serving
        match transition:
            case 'configure':
                patch.setitem(sys.modules, 'robion_ros.nodes.serving', None)
            case 'activate':
                patch.setattr(serving.engine, 'resume', broken)
            case 'deactivate':
                patch.setattr(serving, 'drain', broken)
            case _:
                patch.setattr(serving.engine._pipeline, 'close', broken)
        assert not world.change(transition)
    assert said in capfd.readouterr().err
    assert world.state() == 'unconfigured'
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.UNCONFIGURED)
    world.until(lambda: said in shown(world).message)
    assert shown(world).level == DiagnosticStatus.ERROR
    assert world.change('configure') and world.change('activate')
    arm = robot()
    assert world.assign(1, 'r').success
    world.ready(arm)
    arm.observe()
    world.until(lambda: arm.chunks)
    world.until(lambda: shown(world).level == DiagnosticStatus.OK)


def test_who_still_listens_does_as_told_only_afterwards(world: Any) -> None:
    """It loads nothing beside another of its name, and starts as it would have."""
    server = world.server(listen_time=3.0)
    assert not world.change('configure')
    assert server._serving is None and not server._incarnation.speaks
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.ACTIVE)
