# SPDX-License-Identifier: Apache-2.0
"""How an assignment changes the robots of a server: whole, in order, or not at all."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.node import Node

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import ActionChunk, Dropped, DropReason, Observation, Request, Timings
from robion_ros.msg import RobotAssignment, RobotStatus
from robion_ros.nodes import served_robot
from robion_ros.nodes.formation import Frame
from robion_ros.nodes.lease import Lease
from robion_ros.nodes.roster import Refusal, Roster
from robion_ros.nodes.served_robot import Hooks, Memory, unheard
from robion_ros.srv import AssignRobots

pytestmark = pytest.mark.ros

ARM = ModelConfig('tiny', {'front': CameraConfig()}, ('a', 'b'), 2.0, 0.15, 4, prompt='pick')
MODELS = {'arm': ARM, 'eye': ModelConfig('tiny', {'front': CameraConfig(), 'top': CameraConfig()},
                                         ('a', 'b'), 2.0, 0.15, 4)}


class Bench:
    """A roster and a log of what it calls."""

    def __init__(self, node: Node) -> None:
        self.log: list[Any] = []
        self.memories: dict[str, Memory] = {}
        self.lease = Lease(3600.0)
        self.node = node
        self.roster = Roster(
            node, MODELS, 0.5, Hooks(lambda draft: self.log.append((draft.robot, draft.number)),
                                     lambda robot: self.log.append(('prompt', robot))),
            lambda: self.log.append(dict(self.roster.active)), self.memories, self.lease)

    def apply(self, epoch: int, *robots: RobotAssignment) -> AssignRobots.Response:
        return self.roster.apply(AssignRobots.Request(epoch=epoch, robots=list(robots)))

    def observe(self, robot: str) -> None:
        formation = self.roster.robots[robot].formation
        assert formation is not None
        now = served_robot.monotonic()
        formation.add_state(np.zeros(2, np.float32), now)
        formation.add_frame('front', Frame(None, 5, now))

    def inputs(self) -> set[str]:
        """Return the topics that are listened to."""
        return {subscription.topic_name for subscription in self.node.subscriptions
                if not subscription.topic_name.startswith('/parameter')}


@pytest.fixture
def bench(own_domain: None) -> Iterator[Bench]:
    rclpy.init(args=[])
    node = rclpy.create_node('n')
    bench = Bench(node)
    yield bench
    bench.roster.close()
    assert not bench.inputs()
    assert not [publisher for publisher in node.publishers
                if 'action_chunk' in publisher.topic_name]
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def place() -> Callable[..., RobotAssignment]:
    return lambda robot, model='arm', **fields: RobotAssignment(robot=robot, model=model, **fields)


Place = Callable[..., RobotAssignment]


def request(robot: str, number: int = 1) -> Request:
    blank = Observation((), np.zeros(2, np.float32), 'pick', 0)
    return Request(robot, number, 'arm', blank, 0.0, 1.0)


def chunk(robot: str, finished: float = 0.5) -> ActionChunk:
    return ActionChunk(request(robot), np.zeros((3, 2), np.float32), Timings(0, 0, 0, 0), 1,
                       finished)


def test_the_engine_is_told_before_a_request_of_the_new_assignment_is_formed(
        bench: Bench, place: Place) -> None:
    bench.apply(1, place('r', standby=True), place('s'))
    bench.observe('r')
    bench.observe('s')
    bench.apply(2, place('r', last_request=8), place('s'))
    assert bench.log == [{'s': 'arm'}, {'r': 'arm', 's': 'arm'}, ('r', 9), ('s', 1)]


def test_the_topics_follow_the_assignment(bench: Bench, place: Place) -> None:
    arm = {'/r/front/image_raw', '/r/joint_states', '/r/prompt'}
    bench.apply(1, place('r'))
    assert bench.inputs() == arm
    bench.apply(2, place('r', 'eye'))
    assert bench.inputs() == arm | {'/r/top/image_raw'}
    bench.apply(3, place('r'), place('s', standby=True))
    assert bench.inputs() == arm | {topic.replace('r', 's', 1) for topic in arm}
    bench.apply(4, place('s'))
    assert bench.inputs() == {topic.replace('r', 's', 1) for topic in arm}


@pytest.mark.parametrize('wrong', [('Röbi', 'arm'), ('t', 'welder'), ('s', 'arm')])
def test_all_or_none(bench: Bench, place: Place, wrong: tuple[str, str]) -> None:
    bench.apply(1, place('r'))
    before = bench.inputs()
    with pytest.raises(Refusal):
        bench.apply(2, place('s'), place(*wrong))
    assert bench.inputs() == before
    assert bench.roster.epoch == 1
    assert bench.log == [{'r': 'arm'}]


def test_states_of_a_robot(bench: Bench, place: Place) -> None:
    def state() -> int:
        return bench.roster.robots['r'].state
    bench.apply(1, place('r', standby=True))
    assert state() == RobotStatus.STANDBY
    bench.apply(2, place('r'))
    assert state() == RobotStatus.ACTIVE
    bench.observe('r')
    bench.roster.robots['r'].form()
    released, = bench.apply(3, place('r', standby=True)).released
    assert (released.robot, released.last_request, released.watermark) == ('r', 1, 5)
    assert state() == RobotStatus.STANDBY
    released, = bench.apply(4).released
    assert released.last_request == 1
    assert state() == RobotStatus.LEAVING
    assert not bench.apply(5).released, 'it was let go already'
    bench.apply(6, place('r'))
    assert state() == RobotStatus.ACTIVE
    assert bench.roster.robots['r'].handover.last_request == 1


def test_robots_that_come_and_go_leave_no_trace(bench: Bench, place: Place) -> None:
    before = len(bench.node.default_callback_group.entities)
    for epoch in range(1, 9):
        bench.apply(epoch, *([place('r')] if epoch % 2 else []))
        bench.roster.tidy()
    assert len(bench.node.default_callback_group.entities) == before


@pytest.mark.parametrize(('outcome', 'counter'), [
    (chunk('r'), 'answered'),
    *((Dropped(request('r'), reason, 'why'), reason.value) for reason in DropReason)],
    ids=lambda value: value if isinstance(value, str) else '')
def test_a_robot_stays_until_its_request_has_ended(bench: Bench, place: Place, outcome: Any,
                                                   counter: str) -> None:
    bench.apply(1, place('r'))
    robot = bench.roster.robots['r']
    bench.observe('r')
    robot.form()
    bench.apply(2)
    bench.roster.tidy()
    assert 'r' in bench.roster.robots
    robot.end(outcome)
    bench.roster.tidy()
    assert not bench.roster.robots
    counters = vars(bench.memories['r'].counters)
    assert {name for name, value in counters.items() if value} == {'requests', counter}
    assert robot.last_error == ('request 1 failed: why' if counter == 'failed' else '')


def test_a_late_chunk_is_counted_as_such(bench: Bench, place: Place) -> None:
    bench.apply(1, place('r'))
    bench.roster.robots['r'].end(chunk('r', finished=1.5))
    assert (bench.memories['r'].counters.answered, bench.memories['r'].counters.late) == (1, 1)


def test_a_repeated_call_gives_the_same_answer_until_the_robots_are_released(
        bench: Bench, place: Place) -> None:
    first = bench.apply(1, place('r'))
    assert bench.apply(1, place('r')) is first
    assert len(bench.log) == 1
    with pytest.raises(Refusal, match='epoch 1 is not newer than 1'):
        bench.apply(1, place('s'))
    bench.roster.release_all()
    with pytest.raises(Refusal, match='call again with a greater one'):
        bench.apply(1, place('r'))


def test_a_kind_of_trouble_does_not_keep_another_from_being_said(
        bench: Bench, place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    bench.apply(1, place('r'))
    robot = bench.roster.robots['r']
    for _ in range(3):
        robot.say('front', 'front: dark')
        robot.say('prompt', 'prompt: empty')
    err = capfd.readouterr().err
    assert err.count('r: front: dark') == 1
    assert err.count('r: prompt: empty') == 1
    assert robot.last_error == ''


def test_what_is_not_heard(bench: Bench, place: Place) -> None:
    bench.apply(1, place('r'), place('s', 'eye'))
    robots, now = bench.roster.robots, served_robot.monotonic()
    assert unheard(robots, now) == {}, 'it was listened to for no time yet'
    bench.observe('r')
    robots['s'].refusals['top'] = now + 1, 'too dark'
    assert unheard(robots, now + 5.9) == {
        'r': ('arm', {'front': 'no message for 6 s', 'joint_states': 'no message for 6 s'}),
        's': ('eye', {'front': '', 'top': 'too dark', 'joint_states': '', 'prompt': ''})}
    assert unheard(robots, now + 60)['s'][1]['top'] == ''
