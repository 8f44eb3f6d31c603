# SPDX-License-Identifier: Apache-2.0
"""How the topics of a server's robots follow what it was told: soon, one after another."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from rclpy.executors import TimeoutException

from robion_ros.msg import RobotStatus
from robion_ros.nodes.spinner import run_ready

from .rosters import Bench, chunk, opened, place

pytestmark = pytest.mark.ros


@pytest.fixture
def bench(own_domain: None) -> Iterator[Bench]:
    with opened() as bench:
        yield bench


def test_the_topics_follow_the_assignment(bench: Bench) -> None:
    arm = {'/r/front/image_raw', '/r/joint_states', '/r/prompt'}
    bench.apply(1, place('r'))
    bench.settle()
    assert bench.inputs() == arm
    bench.apply(2, place('r', 'eye'))
    bench.settle()
    assert bench.inputs() == arm | {'/r/top/image_raw'}
    bench.apply(3, place('r'), place('s', standby=True))
    bench.settle()
    assert bench.inputs() == arm | {topic.replace('r', 's', 1) for topic in arm}
    assert bench.outputs() == {'/r/action_chunk', '/s/action_chunk'}
    bench.apply(4, place('s'))
    bench.settle()
    assert bench.inputs() == {topic.replace('r', 's', 1) for topic in arm}
    assert bench.outputs() == {'/s/action_chunk'}


def test_a_turn_of_the_executor_opens_or_closes_one_topic(bench: Bench) -> None:
    names = [f'r{index}' for index in range(4)]
    bench.apply(1, *map(place, names))
    assert set(bench.roster.active) == set(names)
    for epoch, many in ((2, len(names)), (3, 0)):
        before = bench.inputs() | bench.outputs()
        with suppress(TimeoutException):
            while True:
                run_ready(bench.executor)
                after = bench.inputs() | bench.outputs()
                assert len(after ^ before) <= 1
                assert {f'/{topic.split("/")[1]}/action_chunk' for topic in after} <= after
                before = after
        assert len(bench.outputs()) == many
        assert len(bench.inputs()) == 3 * many
        bench.apply(epoch)
        assert not bench.roster.active


def test_a_robot_that_leaves_before_its_topics_were_opened_leaves_none(
        bench: Bench) -> None:
    bench.apply(1, place('r'), place('s'), place('t', last_request=7))
    for _ in range(3):
        run_ready(bench.executor)
    assert {topic[:3] for topic in bench.inputs()} == {'/r/'}
    released = bench.apply(2).released
    assert [(item.robot, item.last_request) for item in released] == [
        ('r', 0), ('s', 0), ('t', 7)]
    bench.settle()
    assert not bench.inputs() | bench.outputs()
    assert not bench.roster.robots
    assert bench.roster.epoch == 2


def test_a_robot_that_comes_back_before_its_topics_were_closed_is_heard_anew(
        bench: Bench) -> None:
    def subscriptions() -> list[Any]:
        return [subscription for subscription in bench.node.subscriptions
                if subscription.topic_name.startswith('/r/')]
    bench.apply(1, place('r'))
    bench.settle()
    before = subscriptions()
    bench.apply(2)
    bench.apply(3, place('r', standby=True))
    assert bench.roster.robots['r'].state == RobotStatus.STANDBY
    bench.settle()
    # What is latched is sent to new subscriptions alone.
    assert len(subscriptions()) == len(before)
    assert not set(subscriptions()) & set(before)
    assert bench.outputs() == {'/r/action_chunk'}


def test_the_topics_of_a_term_that_has_ended_are_closed(bench: Bench) -> None:
    bench.apply(1, place('r'), place('s'))
    bench.settle()
    bench.lease._term += 1
    assert bench.roster.expire()
    assert not bench.roster.active
    bench.settle()
    assert not bench.roster.robots


def test_robots_that_come_and_go_leave_no_trace(bench: Bench) -> None:
    before = len(bench.node.default_callback_group.entities)
    for epoch in range(1, 9):
        bench.apply(epoch, *([place('r')] if epoch % 2 else []))
        bench.settle()
    assert len(bench.node.default_callback_group.entities) == before


def test_a_publisher_stays_while_its_last_chunk_may_be_on_its_way(bench: Bench) -> None:
    bench.roster.chunk_length = 3600.0
    bench.apply(1, place('r'), place('s'))
    bench.settle()
    bench.observe('r')
    robot = bench.roster.robots['r']
    robot.form()
    robot.end(chunk('r'))
    bench.apply(2)
    bench.settle()
    assert not bench.inputs()
    assert bench.outputs() == {'/r/action_chunk'}
    bench.roster.chunk_length = 0.0
    bench.roster.settle()
    bench.settle()
    assert not bench.outputs()
    assert not bench.roster.robots
