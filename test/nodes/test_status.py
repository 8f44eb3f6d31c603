# SPDX-License-Identifier: Apache-2.0
"""A server described as messages."""

from types import SimpleNamespace
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
import pytest
from std_msgs.msg import Header

from robion_ros.engine.stats import EngineStats
from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes.convert import to_duration
from robion_ros.nodes.status import diagnostics, server_status

pytestmark = pytest.mark.ros


def status(*robots: RobotStatus, state: int = ServerStatus.ACTIVE) -> ServerStatus:
    serving = SimpleNamespace(
        roster=SimpleNamespace(term=8, robots={}), capacities={'arm': 4, 'crane': 0},
        engine=SimpleNamespace(stats=lambda: EngineStats(3, 40, 1.25, 9)))
    made = server_status(serving, header=Header(), server='server_0', incarnation=7, term=9,
                         state=state, device='cpu', server_timeout=to_duration(0.4))
    made.robots = list(robots)
    return made


def values(entry: DiagnosticStatus) -> dict[str, str]:
    return {item.key: item.value for item in entry.values}


def test_server() -> None:
    made = status()
    assert (made.server, made.incarnation, made.term, made.device) == ('server_0', 7, 8, 'cpu')
    assert list(made.models) == ['arm', 'crane'] and list(made.capacities) == [4, 0]
    assert (made.epoch, made.waiting, made.locksteps) == (9, 3, 40)
    assert (made.server_timeout.sec, made.server_timeout.nanosec) == (0, 400_000_000)
    assert (made.lockstep_time.sec, made.lockstep_time.nanosec) == (1, 250_000_000)
    entry, = diagnostics(made, {}).status
    assert (entry.name, entry.hardware_id) == ('robion: server_0', 'server_0')
    assert values(entry) == {
        'device': 'cpu', 'models': 'arm crane', 'capacities': '4 0',
        'epoch': '9', 'robots': '0', 'waiting': '3',
        'locksteps': '40', 'lockstep ms': '1250.0'}


@pytest.mark.parametrize(('state', 'problems', 'level', 'message'), [
    (ServerStatus.ACTIVE, {}, DiagnosticStatus.OK, 'serving'),
    (ServerStatus.INACTIVE, {}, DiagnosticStatus.WARN, 'not serving'),
    (ServerStatus.UNCONFIGURED, {'': 'no checkpoint'}, DiagnosticStatus.ERROR, 'no checkpoint'),
])
def test_level_of_the_server(state: int, problems: dict[str, str], level: bytes,
                             message: str) -> None:
    entry, = diagnostics(status(state=state), problems).status
    assert (entry.level, entry.message) == (level, message)


@pytest.mark.parametrize(('state', 'problems', 'level', 'message'), [
    (RobotStatus.ACTIVE, {}, DiagnosticStatus.OK, 'served'),
    (RobotStatus.STANDBY, {}, DiagnosticStatus.OK, 'standby: listened to, not answered'),
    (RobotStatus.LEAVING, {}, DiagnosticStatus.OK, 'leaving'),
    (RobotStatus.ACTIVE, {'r': 'no camera'}, DiagnosticStatus.WARN, 'no camera'),
    (RobotStatus.ACTIVE, {'s': 'no camera'}, DiagnosticStatus.OK, 'served'),
])
def test_level_of_a_robot(state: int, problems: dict[str, Any], level: bytes,
                          message: str) -> None:
    robot = RobotStatus(robot='r', model='arm', state=state, requests=8, answered=5, late=1,
                        superseded=1, shed=0, failed=1, cancelled=1, refused=4,
                        last_error='front: dark')
    _, entry = diagnostics(status(robot), problems).status
    assert (entry.name, entry.hardware_id) == ('robion: server_0: r', 'r')
    assert (entry.level, entry.message) == (level, message)
    assert values(entry) == {
        'model': 'arm', 'ready': 'False', 'last error': 'front: dark', 'requests': '8',
        'answered': '5', 'late': '1', 'superseded': '1', 'shed': '0', 'failed': '1',
        'cancelled': '1', 'refused': '4'}
