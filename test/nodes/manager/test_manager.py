# SPDX-License-Identifier: Apache-2.0
"""The manager among servers that come, go, and do not do as told."""

from time import monotonic

import pytest

from robion_ros.msg import Assignment, Population, RobotStatus, ServerStatus
from robion_ros.nodes import qos

pytestmark = pytest.mark.ros

GOOD = '0 every robot is assigned'
ALL = {f'robot_{number}' for number in range(1, 6)}
NO_ROBOTS = """
models:
  pick: {architecture: tiny, cameras: [front], joints: [a], rate: 2.0, slo: 0.2, capacity: 4}
servers:
  server_0: {models: [pick]}
"""


def start(floor, count=2):
    """Start servers and a manager; wait until every robot is answered."""
    servers = [floor.add(f'server_{number}') for number in range(count)]
    floor.manage()
    floor.until(lambda: floor.settled(5))
    return servers


def test_servers_get_every_robot_once_and_a_late_subscriber_hears_it(floor) -> None:
    start(floor)
    assert {robot: model for robot, (model, _) in floor.places.items()} == {
        'robot_1': 'pick', 'robot_2': 'pick', 'robot_3': 'pick',
        'robot_4': 'place', 'robot_5': 'place'}
    # A model's robots stay together: they batch.
    assert len(set(floor.places.values())) == 2
    heard: list[Assignment] = []
    floor.operator.create_subscription(Assignment, 'manager/assignment', heard.append,
                                       qos.LATCHED_QOS)
    floor.until(lambda: heard)
    assert heard[0] == floor.assignments[-1]
    assert [robot.robot for robot in heard[0].robots] == sorted(ALL)
    floor.until(lambda: floor.complaint == GOOD)


def test_nothing_is_assigned_until_servers_are_settled(floor) -> None:
    floor.manage()
    first = floor.add('server_0')
    late = floor.add('server_1')
    floor.until(lambda: floor.settled(5))
    # Both were there in time: one plan, in which nothing moves.
    assert len(first.calls) == len(late.calls) == 1
    assert not any(item.standby for item in first.calls[0].robots + late.calls[0].robots)


def test_server_with_another_server_timeout_is_named_until_it_has_ours(floor) -> None:
    other = floor.add('server_0', server_timeout=3.0)
    floor.add('server_1')
    floor.manage()
    floor.until(lambda: floor.settled(5))
    floor.until(lambda: floor.complaint.startswith(
        '1 server_0 has manager.server_timeout 3 s, this manager 1.5 s'))
    other.server_timeout = 1.5
    floor.until(lambda: floor.complaint == GOOD)


def test_server_that_is_not_active_gets_no_robots_until_it_is(floor) -> None:
    floor.add('server_0')
    idle = floor.add('server_1', state=ServerStatus.UNCONFIGURED, models=[])
    floor.manage()
    floor.until(lambda: any('not every robot is served' in text for text in floor.diagnostics))
    assert not idle.calls
    idle.state, idle.models = ServerStatus.ACTIVE, ['pick', 'place']
    floor.until(lambda: floor.settled(5))
    floor.until(lambda: floor.complaint == GOOD)


def test_server_that_lost_its_robots_is_told_again(floor) -> None:
    """It was deactivated and activated, quicker than it was missed."""
    _, other = start(floor)
    with floor.lock:
        other.robots.clear()
    floor.until(lambda: not other.calls[-1].robots or other.active)
    floor.until(lambda: floor.settled(5))


def test_server_that_got_a_robot_from_somebody_else_lets_it_go(floor) -> None:
    one, other = start(floor)
    stray = RobotStatus(robot='stray', model='pick', state=RobotStatus.ACTIVE)
    with floor.lock:
        other.robots['stray'] = stray
    floor.until(lambda: 'stray' not in other.active)
    floor.until(lambda: floor.settled(5))
    assert one.active and 'stray' not in floor.announced


def test_server_that_refuses_is_named_and_tried_again(floor) -> None:
    floor.add('server_0')
    rude = floor.add('server_1', refusal='not today')
    floor.manage()
    floor.until(lambda: '1 server_1 refused: not today' in floor.diagnostics)
    floor.until(lambda: len(rude.calls) >= 2)
    assert set(floor.announced.values()) <= {('pick', 'server_0'), ('place', 'server_0')}
    rude.refusal = ''
    floor.until(lambda: floor.settled(5))
    floor.until(lambda: floor.complaint == GOOD)


def test_server_without_service_is_named_and_tried_again(floor) -> None:
    floor.add('server_0')
    deaf = floor.add('server_1')
    deaf.destroy_service(deaf.service)
    floor.manage()
    floor.until(lambda: '1 server_1 did not answer' in floor.diagnostics)
    deaf.offer()
    floor.until(lambda: floor.settled(5))


def test_server_of_another_factory_file_disturbs_nobody(floor) -> None:
    floor.add('server_0')
    floor.add('server_1', models=['pick', 'unknown', 'place'])
    floor.manage()
    floor.until(lambda: floor.settled(5))


def test_model_without_server_is_said_and_the_rest_is_served(floor) -> None:
    floor.add('server_0', models=['pick'])
    floor.manage()
    floor.until(lambda: floor.settled(3))
    floor.until(lambda: '1 no living server has model place loaded' in floor.diagnostics)
    floor.add('server_1', models=['place'])
    floor.until(lambda: floor.settled(5))


def test_manager_that_starts_again_moves_nothing_and_goes_on(floor) -> None:
    servers = [floor.add(f'server_{number}') for number in range(2)]
    stop = floor.manage()
    floor.until(lambda: floor.settled(5))
    answer = floor.rebalance(Population(model='place', robots=['robot_1', 'robot_5', 'new']))
    assert answer.success
    floor.until(lambda: floor.settled(5))  # Without robot_4.
    with floor.lock:
        for server in servers:
            for robot in server.robots.values():
                robot.last_request += 20
    numbers = {name: robot.last_request for server in servers
               for name, robot in server.robots.items()}
    places = floor.places
    epoch = max(server.epoch for server in servers)
    stop()
    for server in servers:
        server.calls.clear()
    count = len(floor.assignments)
    floor.manage()
    floor.until(lambda: all(server.calls for server in servers)
                and len(floor.assignments) > count)
    # The populations are those that run; only who is in the factory file alone comes back.
    floor.until(lambda: floor.settled(6))
    assert floor.places == places | {'robot_4': floor.places['robot_4']}
    for server in servers:
        for call in server.calls:
            assert call.epoch > epoch
            assert not any(item.standby for item in call.robots)
    assert {name: robot.last_request for server in servers
            for name, robot in server.robots.items() if name != 'robot_4'} == numbers
    assert floor.assignments[-1].epoch > floor.assignments[count - 1].epoch


def test_manager_that_starts_again_waits_for_a_server_that_it_hears_late(
        floor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('robion_ros.nodes.watch.RECOVERY_TIME', 600.0)
    one, late = floor.add('server_0'), floor.add('server_1')
    stop = floor.manage()
    floor.until(lambda: floor.settled(5))
    places = floor.places
    floor.until(lambda: all(status.epoch for status in floor.manager._fleet.alive().values()))
    stop()
    # Its last status is latched: a restarted manager would hear that one.
    late.mute = True
    late.destroy_publisher(late.status)
    one.calls.clear()
    floor.manage()
    answers = []
    floor.until(lambda: answers.append(floor.rebalance())
                or 'not yet heard of server_1' in answers[-1].message)
    assert {answer.error_code for answer in answers} == {answers[0].NO_SERVER}
    assert not one.calls
    late.announce()
    late.mute = False
    floor.until(lambda: one.calls)
    floor.until(lambda: floor.settled(5))
    assert floor.places == places


@pytest.mark.parametrize('floor', [NO_ROBOTS], indirect=True, ids=['no robots'])
def test_factory_without_robots_waits_for_some(floor) -> None:
    server = floor.add('server_0')
    floor.manage()
    floor.until(lambda: server.calls and floor.assignments)
    assert not floor.assignments[-1].robots
    floor.until(lambda: floor.complaint == GOOD)
    answer = floor.rebalance(Population(model='pick', count=2))
    assert answer.success
    assert floor.places == {'pick_1': ('pick', 'server_0'), 'pick_2': ('pick', 'server_0')}


def test_factory_without_servers_says_so(floor) -> None:
    floor.manage()
    floor.until(lambda: floor.complaint == '1 waiting for servers')
    begin = monotonic()
    answer = floor.rebalance()
    assert monotonic() - begin < 20
    assert (answer.success, answer.error_code) == (False, answer.NO_SERVER)
    assert 'no server has been heard yet' in answer.message
    floor.add('server_0')
    floor.add('server_1')
    floor.until(lambda: floor.settled(5))
