# SPDX-License-Identifier: Apache-2.0
"""The clock and the pictures of one simulated robot."""

from collections.abc import Iterator
from time import monotonic

import numpy as np
import pytest
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import Image

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.msg import ActionChunk
from robion_ros.nodes.robot_log import RobotLog
from robion_ros.nodes.simulated_robot import draw, PICTURES, SETTLE_TIME, SimulatedRobot

from ..waiting import until

PERIOD = 0.5
ARM = ModelConfig('tiny', {'front': CameraConfig()}, ('a', 'b'), rate=1 / PERIOD, slo=0.2,
                  capacity=4)


@pytest.fixture
def node(own_domain: None) -> Iterator[Node]:
    rclpy.init()
    node = Node('robot')
    yield node
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def robot(node: Node) -> SimulatedRobot:
    rng = np.random.default_rng(0)
    return SimulatedRobot(node, RobotLog('robot_1', {'arm': ARM}, 2.0), ARM, draw(rng, 32, 24),
                          rng, lambda robot, chunk: None)


@pytest.mark.ros
def test_observations_keep_to_their_period_and_the_late_ones_are_skipped(
        node: Node, robot: SimulatedRobot) -> None:
    assert robot.missing() == ('a server in the assignment',)
    robot.assigned = True
    assert robot.missing() == ('a subscriber of front', 'a publisher of action_chunk')
    node.create_subscription(Image, 'robot_1/front/image_raw', lambda image: None, 1)
    node.create_publisher(ActionChunk, 'robot_1/action_chunk', 1)
    until(lambda: not robot.missing())
    robot.begin(now=1.0)
    assert not robot.running
    robot.begin(now=1.0 + SETTLE_TIME)
    first = robot.due
    assert 0.0 <= first - (1.0 + SETTLE_TIME) <= PERIOD, 'at a random phase'
    start = monotonic()
    robot.observe(now_ns=0)
    assert start - PERIOD < robot.due
    steps = (robot.due - first) / PERIOD
    assert steps == pytest.approx(round(steps))
    assert robot.skipped == round(steps) - 1
    assert robot.log.sent == robot.log.outstanding == 1
    robot.observe(now_ns=0)
    assert robot.log.sent == 2, 'stamps differ also where the clock stands still'


def test_the_same_seed_draws_the_same_pictures_and_each_is_another() -> None:
    pictures, again, other = (draw(np.random.default_rng(seed), 32, 24) for seed in (1, 1, 2))
    assert pictures == again != other
    assert len(set(map(bytes, pictures.raw))) == len(set(map(bytes, pictures.jpeg))) == PICTURES
