# SPDX-License-Identifier: Apache-2.0
"""A roster for tests, and what is given to it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor, TimeoutException
from rclpy.node import Node

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import ActionChunk, Observation, Request, Timings
from robion_ros.msg import RobotAssignment
from robion_ros.nodes.formation import Frame
from robion_ros.nodes.lease import Lease
from robion_ros.nodes.roster import Roster
from robion_ros.nodes.served_robot import Hooks, Memory, monotonic
from robion_ros.nodes.spinner import run_ready
from robion_ros.srv import AssignRobots

ARM = ModelConfig('tiny', {'front': CameraConfig()}, ('a', 'b'), 2.0, 0.15, 4, prompt='pick')
MODELS = {'arm': ARM, 'eye': ModelConfig('tiny', {'front': CameraConfig(), 'top': CameraConfig()},
                                         ('a', 'b'), 2.0, 0.15, 4)}


class Bench:
    """A roster, whose chunks arrive at once, and a log of what it calls."""

    def __init__(self, node: Node) -> None:
        self.log: list[Any] = []
        self.memories: dict[str, Memory] = {}
        self.lease = Lease(3600.0)
        self.node = node
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(node)
        self.roster = Roster(
            node, MODELS, 0.0, Hooks(lambda draft: self.log.append((draft.robot, draft.number)),
                                     lambda robot: self.log.append(('prompt', robot))),
            lambda: self.log.append(dict(self.roster.active)), self.memories, self.lease)

    def apply(self, epoch: int, *robots: RobotAssignment) -> AssignRobots.Response:
        return self.roster.apply(AssignRobots.Request(epoch=epoch, robots=list(robots)))

    def settle(self) -> None:
        """Run the executor until topics are as they should be."""
        with suppress(TimeoutException):
            while True:
                run_ready(self.executor)

    def observe(self, robot: str) -> None:
        formation = self.roster.robots[robot].formation
        assert formation is not None
        now = monotonic()
        formation.add_state(np.zeros(2, np.float32), now)
        formation.add_frame('front', Frame(None, 5, now))

    def inputs(self) -> set[str]:
        """Return the topics that are listened to."""
        return {subscription.topic_name for subscription in self.node.subscriptions
                if not subscription.topic_name.startswith('/parameter')}

    def outputs(self) -> set[str]:
        """Return the topics that chunks are published on."""
        return {publisher.topic_name for publisher in self.node.publishers
                if publisher.topic_name.endswith('/action_chunk')}


@contextmanager
def opened() -> Iterator[Bench]:
    """Give a roster a node; nothing of it is left at the end."""
    rclpy.init(args=[])
    node = rclpy.create_node('n')
    bench = Bench(node)
    yield bench
    bench.roster.close()
    assert not bench.inputs()
    assert not bench.outputs()
    bench.settle()
    bench.executor.shutdown()
    node.destroy_node()
    rclpy.shutdown()


def place(robot: str, model: str = 'arm', **fields: Any) -> RobotAssignment:
    return RobotAssignment(robot=robot, model=model, **fields)


def request(robot: str, number: int = 1) -> Request:
    blank = Observation((), np.zeros(2, np.float32), 'pick', 0)
    return Request(robot, number, 'arm', blank, 0.0, 1.0)


def chunk(robot: str, finished: float = 0.5) -> ActionChunk:
    return ActionChunk(request(robot), np.zeros((3, 2), np.float32), Timings(0, 0, 0, 0), 1,
                       finished)
