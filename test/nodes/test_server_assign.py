# SPDX-License-Identifier: Apache-2.0
"""What a server takes and refuses of the manager, and how robots move between servers."""

from collections.abc import Callable
from itertools import count, pairwise
from threading import Event, Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from robion_ros.msg import RobotAssignment, RobotStatus, ServerStatus
from robion_ros.nodes.served_robot import ServedRobot
from robion_ros.srv import AssignRobots

pytestmark = pytest.mark.ros

Make = Callable[..., Any]
CODES = AssignRobots.Response


def test_an_assignment_is_taken_once_and_repeated_at_will(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    first = world.assign(2, 's')
    assert [item.robot for item in first.released] == ['r']
    assert world.assign(2, 's') == first
    world.until(lambda: world.statuses['server_0'].epoch == 2)
    assert [item.robot for item in world.statuses['server_0'].robots if
            item.state == RobotStatus.ACTIVE] == ['s']


@pytest.mark.parametrize(('values', 'message'), [
    ({'last_request': 2**64 - 1}, 'last_request of robot s is 18446744073709551615'),
    ({'watermark': -1}, 'watermark of robot s is -1, must be from 0'),
    ({'prompt_stamp': 2**63 - 1}, 'prompt_stamp of robot s'),
    ({'prompt': '  '}, 'prompt of robot s: empty instruction'),
], ids=['last_request', 'watermark', 'prompt_stamp', 'prompt'])
def test_what_cannot_have_been_handed_over_is_refused(world: Any, kit: SimpleNamespace,
                                                      values: dict[str, Any],
                                                      message: str) -> None:
    world.server()
    place = kit.place('s')
    for name, value in values.items():
        setattr(place, name, value)
    answer = world.assign(1, place)
    assert (answer.success, answer.error_code) == (False, CODES.BAD_VALUE)
    assert message in answer.message


def test_an_epoch_that_could_not_grow_is_refused(world: Any) -> None:
    world.server()
    answer = world.assign(2**64 - 1, 's')
    assert (answer.success, answer.error_code) == (False, CODES.BAD_VALUE)
    assert world.assign(1, 's').success


@pytest.mark.parametrize(('epoch', 'wrong', 'code', 'message'), [
    (4, [], CODES.STALE_EPOCH, 'epoch 4 is not newer than 5'),
    (5, [], CODES.STALE_EPOCH, 'epoch 5 is not newer than 5'),
    (6, [('s', 'welder')], CODES.UNKNOWN_MODEL, "robot s needs model 'welder'"),
    (6, [('t', 'arm'), ('t', 'arm')], CODES.BAD_ROBOT, "'t' stands twice"),
    (6, [('', 'arm')], CODES.BAD_ROBOT, 'not a valid ROS name'),
    (6, [('/r', 'arm')], CODES.BAD_ROBOT, "'r' would be"),
    (6, [('Röbi', 'arm')], CODES.BAD_ROBOT, "'Robi' would be"),
    (6, [('a' * 300, 'arm')], CODES.BAD_ROBOT, 'at most 150'),
])
def test_a_wrong_assignment_changes_nothing(world: Any, robot: Make, kit: SimpleNamespace,
                                            epoch: int, wrong: list[tuple[str, str]], code: int,
                                            message: str) -> None:
    world.server()
    arm = robot()
    world.assign(5, 'r')
    world.ready(arm)
    answer = world.assign(epoch, 'fine', *(kit.place(*words) for words in wrong))
    assert not answer.success
    assert answer.error_code == code
    assert message in answer.message
    assert not answer.released
    arm.observe()
    world.until(lambda: arm.chunks)
    world.until(lambda: world.statuses['server_0'].epoch == 5)
    assert [item.robot for item in world.statuses['server_0'].robots] == ['r']


def test_a_robot_that_is_let_go_takes_along_what_the_next_server_must_know(
        world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    arm.say('stack')
    world.until(lambda: world.robot_status().prompt == 'stack')
    arm.observe()
    world.until(lambda: arm.chunks)
    world.until(lambda: world.robot_status().last_request == arm.chunks[0].request)
    status = world.robot_status()
    released, = world.assign(2).released
    assert (released.robot, released.prompt) == ('r', 'stack')
    assert (released.last_request, released.watermark, released.prompt_stamp) == (
        status.last_request, status.watermark, status.prompt_stamp)
    assert released.watermark > 0
    world.until(lambda: not arm.front.get_subscription_count())


def test_requests_of_a_robot_that_is_let_go_are_still_answered(world: Any, robot: Make,
                                                               fakes: Any) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    world.hold(arm, fakes, 7)
    world.assign(2)
    world.until(lambda: world.robot_status().state == RobotStatus.LEAVING)
    assert not world.robot_status().ready
    fakes['pick'][0].gate.set()
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].observation_stamp.sec == 7
    world.until(lambda: not world.statuses['server_0'].robots)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Let the topics of all robots but r take many turns of the executor, until this is set."""
    done, settle = Event(), ServedRobot.settle
    monkeypatch.setattr(ServedRobot, 'settle', lambda robot: settle(robot) if (
        robot.name == 'r' or done.is_set()) else True)
    return done


def test_a_robot_is_answered_while_the_topics_of_others_are_opened_and_closed(
        world: Any, robot: Make, kit: SimpleNamespace, slow: Event) -> None:
    world.server()
    arm, other = robot(), robot('s')
    world.assign(1, 'r')
    world.ready(arm)
    for epoch, names in ((2, ['r', 's', 't', 'u']), (3, ['r'])):
        assert world.assign(epoch, *names).success
        for _ in range(3):
            # Again and again: what comes faster than the model's rate is not answered.
            world.until(lambda: arm.chunks or arm.observe())
            arm.chunks.clear()
        if epoch == 2:
            status = world.robot_status('s')
            assert (status.state, status.ready) == (RobotStatus.ACTIVE, False)
            slow.set()
            world.ready(other)
            slow.clear()
    assert world.robot_status('s').state == RobotStatus.LEAVING
    slow.set()
    world.until(lambda: [item.robot for item in world.statuses['server_0'].robots] == ['r'])
    assert not other.front.get_subscription_count()


@pytest.mark.parametrize('transitions', [['deactivate'], ['deactivate', 'cleanup'], ['shutdown']])
def test_a_server_that_ends_before_topics_were_opened_leaves_none(
        world: Any, robot: Make, slow: Event, transitions: list[str]) -> None:
    world.server()
    arm, other = robot(), robot('s')
    world.assign(1, 'r')
    world.ready(arm)
    assert world.assign(2, 'r', 's', 't').success
    for transition in transitions:
        assert world.change(transition)
    slow.set()
    world.until(lambda: not world.statuses['server_0'].robots
                and world.statuses['server_0'].state != ServerStatus.ACTIVE)
    for publisher in (arm.front, arm.joints, other.front):
        world.until(lambda publisher=publisher: not publisher.get_subscription_count())
    assert not world.node.count_publishers('s/action_chunk')


def test_standby_listens_and_does_not_answer(world: Any, robot: Make,
                                             kit: SimpleNamespace) -> None:
    world.server()
    arm = robot()
    world.assign(1, kit.place('r', standby=True))
    world.ready(arm)
    arm.observe()
    sleep(kit.GRACE)
    status = world.robot_status()
    assert (status.state, status.requests, status.ready) == (RobotStatus.STANDBY, 0, True)
    world.assign(2, kit.place('r', last_request=41))
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].request == 42


def test_a_robot_moves_between_servers_under_traffic(world: Any, robot: Make,
                                                     kit: SimpleNamespace) -> None:
    """Nothing is lost or doubled: every observation gets one chunk, numbers grow."""
    world.server('server_0')
    world.server('server_1')
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    sent, stop = [0], Event()

    def publish() -> None:
        while not stop.wait(0.1):
            sent[0] += 1
            arm.observe(sent[0])
    traffic = Thread(target=publish)
    traffic.start()
    try:
        here, there = 'server_0', 'server_1'
        for epoch in count(2, 3):
            assert world.assign(epoch, kit.place('r', standby=True), server=there).success
            world.until(lambda there=there: world.robot_status('r', there).ready
                        and world.robot_status('r', there).state == RobotStatus.STANDBY)
            released, = world.assign(epoch + 1, server=here).released
            assert world.assign(epoch + 2, RobotAssignment(
                robot='r', model='arm', last_request=released.last_request,
                watermark=released.watermark, prompt=released.prompt,
                prompt_stamp=released.prompt_stamp), server=there).success
            got = len(arm.chunks)
            world.until(lambda got=got: len(arm.chunks) > got + 3)
            here, there = there, here
            if epoch > 15:
                break
    finally:
        stop.set()
        traffic.join()
    world.until(lambda: arm.chunks[-1].observation_stamp.sec == sent[0])
    assert [chunk.observation_stamp.sec for chunk in arm.chunks] == list(range(1, sent[0] + 1))
    assert all(one.request < two.request for one, two in pairwise(arm.chunks))


def test_a_robot_survives_200_assignments_under_traffic(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    stop = Event()

    def publish() -> None:
        while not stop.wait(0.02):
            arm.observe()
    traffic = Thread(target=publish)
    traffic.start()
    try:
        for epoch in range(2, 402):
            assert world.assign(epoch, *(['r'] if epoch % 2 else [])).success
        seen = len(arm.chunks)
        assert world.assign(402, 'r').success
        world.until(lambda: len(arm.chunks) > seen + 3)
    finally:
        stop.set()
        traffic.join()
    for publisher, subscriptions in ((arm.front, 1), (arm.wrist, 1), (arm.joints, 1),
                                     (arm.prompt, 1)):
        world.until(lambda publisher=publisher, subscriptions=subscriptions:
                    world.node.count_subscribers(publisher.topic_name) == subscriptions
                    + (publisher is arm.prompt))
    world.until(world.ended)
    assert all(one.request < two.request for one, two in pairwise(arm.chunks))
