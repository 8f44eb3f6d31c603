# SPDX-License-Identifier: Apache-2.0
"""Robots that come and go one by one while the factory runs."""

from typing import Any

import pytest

from robion_ros.msg import RobotMove, RobotStatus
from robion_ros.srv import Rebalance, RegisterRobot, UnregisterRobot

pytestmark = pytest.mark.ros

CODES = Rebalance.Response


def call(floor, kind: type, name: str, **fields: Any) -> Any:
    client = floor.operator.create_client(kind, f'manager/{name}')
    floor.until(client.service_is_ready)
    future = client.call_async(kind.Request(**fields))
    floor.until(future.done, f'{name} answers')
    return future.result()


def register(floor, robot: str, model: str, **fields: Any) -> RegisterRobot.Response:
    return call(floor, RegisterRobot, 'register_robot', robot=robot, model=model, **fields)


def unregister(floor, robot: str, **fields: Any) -> UnregisterRobot.Response:
    return call(floor, UnregisterRobot, 'unregister_robot', robot=robot, **fields)


def test_robot_that_comes_is_served_and_the_others_stay(served) -> None:
    before = served.places
    answer = register(served, 'new_1', 'pick')
    assert answer.success, answer.message
    assert served.places == before | {'new_1': ('pick', answer.server)}
    assert answer.changes == [RobotMove(robot='new_1', to_model='pick', to_server=answer.server)]
    served.until(lambda: served.settled(6))
    calls = [len(server.calls) for server in served.servers.values()]
    again = register(served, 'new_1', 'pick')
    assert (again.success, again.server, again.changes) == (True, answer.server, [])
    assert [len(server.calls) for server in served.servers.values()] == calls


def test_robot_that_leaves_is_served_no_more_and_the_others_stay(served) -> None:
    before = served.places
    answer = unregister(served, 'robot_2')
    assert answer.success, answer.message
    model, server = before.pop('robot_2')
    assert served.places == before
    assert answer.changes == [RobotMove(robot='robot_2', from_model=model, from_server=server)]
    served.until(lambda: served.settled(4))
    gone = unregister(served, 'robot_2')
    assert (gone.success, gone.error_code) == (False, CODES.BAD_POPULATION)
    assert "did you mean 'robot_" in gone.message


def test_change_can_be_looked_at_first(served) -> None:
    before, count = served.places, len(served.assignments)
    there = register(served, 'new_1', 'place', dry_run=True)
    assert there.success and there.server
    assert [move.robot for move in there.changes if not move.from_server] == ['new_1']
    gone = unregister(served, 'robot_1', dry_run=True)
    assert [move.robot for move in gone.changes if not move.to_server] == ['robot_1']
    other = served.rebalance(dry_run=True)
    assert other.success and other.changes == []
    assert served.places == before and len(served.assignments) == count


def test_robot_that_has_another_model_changes_it(served) -> None:
    answer = register(served, 'robot_1', 'place')
    assert answer.success
    assert served.places['robot_1'] == ('place', answer.server)
    [move] = [move for move in answer.changes if move.robot == 'robot_1']
    assert (move.from_model, move.to_model) == ('pick', 'place')


@pytest.mark.parametrize(('robot', 'model', 'code', 'message'), [
    ('new', 'pik', CODES.BAD_POPULATION, "did you mean 'pick'"),
    ('arm 1', 'pick', CODES.BAD_POPULATION, "'arm_1' would be"),
    ('server_0', 'pick', CODES.BAD_POPULATION, 'stands twice'),
])
def test_robot_that_cannot_be_is_refused(served, robot, model, code, message) -> None:
    before = served.places
    answer = register(served, robot, model)
    assert (answer.success, answer.error_code, answer.server) == (False, code, '')
    assert message in answer.message
    assert served.places == before


def test_robots_come_until_the_factory_is_full_and_the_rest_is_served_on(served) -> None:
    answers = [register(served, f'new_{number}', 'pick') for number in range(4)]
    assert [answer.success for answer in answers] == [True, True, True, False]
    assert answers[-1].error_code == CODES.OVER_CAPACITY
    assert 'over by 1' in answers[-1].message
    assert len(served.places) == 8
    assert unregister(served, 'new_0').success
    assert register(served, 'new_3', 'pick').success


def test_robots_leave_one_by_one_also_while_not_all_can_be_served(served) -> None:
    for number in range(2):
        assert register(served, f'new_{number}', 'pick').success
    served.servers['server_1'].die()
    served.until(lambda: served.settled(4))  # 4 fit, there are 7.
    robot, (model, server) = next(iter(served.places.items()))
    again = register(served, robot, model)
    assert (again.success, again.server, again.changes) == (True, server, [])
    for left in (2, 1):
        robot = next(iter(served.places))
        answer = unregister(served, robot)
        assert answer.success and f'over by {left} robot' in answer.message
        served.until(lambda: served.settled(4))
        assert robot not in served.places


def known_at(floor, server: str, state: int) -> None:
    """Let a server have been told of a robot by a manager before this one."""
    robot = RobotStatus(robot='new_1', model='pick', state=state, last_request=7, ready=True)
    floor.servers[server].robots['new_1'] = robot
    floor.servers[server].epoch = 1


@pytest.mark.parametrize('state', [RobotStatus.ACTIVE, RobotStatus.STANDBY],
                         ids=['answered', 'listened to'])
def test_robot_of_a_manager_before_is_known(floor, monkeypatch, state: int) -> None:
    """Also where that one ended when the robot was let go, and not yet taken over."""
    monkeypatch.setattr('robion_ros.nodes.watch.LISTEN_TIME', 0.0)
    for name in ('server_0', 'server_1'):
        floor.add(name)
    known_at(floor, 'server_1', state)
    floor.manage()
    floor.until(lambda: floor.settled(6))
    assert floor.places['new_1'][0] == 'pick'


def test_robot_of_a_server_that_is_heard_late_is_known(floor, monkeypatch) -> None:
    monkeypatch.setattr('robion_ros.nodes.watch.LISTEN_TIME', 0.0)
    monkeypatch.setattr('robion_ros.nodes.watch.RECOVERY_TIME', 0.0)
    floor.add('server_0')
    floor.manage()
    floor.until(lambda: floor.announced and set(floor.announced) == set(floor.places))
    late = floor.add('server_1', mute=True)
    known_at(floor, 'server_1', RobotStatus.ACTIVE)
    late.mute = False
    floor.until(lambda: floor.settled(6))
    assert floor.places['new_1'][0] == 'pick'
