# SPDX-License-Identifier: Apache-2.0
"""
What the nodes that simulate robots share: the robots, their joints and the check of each chunk.

Not known here: when robots observe, and whom their logs are for.
"""

from collections.abc import Collection, Sequence
from time import monotonic
from typing import TypeVar

import numpy as np
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from robion_ros.config import check_range
from robion_ros.factory_file import load
from robion_ros.msg import ActionChunk
from robion_ros.nodes.convert import from_duration, from_time
from robion_ros.nodes.parameters import declare, Parameter
from robion_ros.nodes.robot_log import Chunk, Kind, RobotLog, Verdict
from robion_ros.nodes.simulated_robot import draw, PICTURES, SimulatedRobot

CONFIG = Parameter('config', 'factory.yaml', 'path of the factory file')
MESSAGES = (
    Parameter('joint_rate', 20.0, 'joint states of a robot per second, Hz', 0.1, 1000),
    Parameter('image_width', 224, 'columns of a picture', 8, 8192),
    Parameter('image_height', 224, 'rows of a picture', 8, 8192),
)
"""What robots publish."""
LONGEST_PATIENCE = 3600
LARGEST_SEED = 2**63 - 1
SHOWN = 5
"""Unanswered observations of a robot that are named at the end."""

RobotT = TypeVar('RobotT', bound=SimulatedRobot)


class RobotsNode(Node):
    """The robots of one process, on one steady clock."""

    def __init__(self, name: str, table: Sequence[Parameter]) -> None:
        super().__init__(name)
        self.exit_code = 0
        self._values = declare(self, table)
        self._factory = load(str(self._values['config']))
        self._patience = float(self._values['patience'])
        self._active: Collection[SimulatedRobot] = ()
        """Robots that publish joint states."""
        self._moves = 0
        self._joint_period = 1.0 / float(self._values['joint_rate'])
        # Robots keep their pace also where simulated time stands still or jumps.
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._joint_timer = self.create_timer(self._joint_period, self._on_joint_timer,
                                              clock=self._steady)

    def _populate(self, kind: type[RobotT], pictures: int = PICTURES) -> dict[str, RobotT]:
        """Make the robots that the parameters choose, of one kind, with so many pictures."""
        values, models = self._values, self._factory.models
        named = [(robot, model) for model, robots in self._factory.robots.items()
                 for robot in robots]
        # Only nodes that are one of several for a file pass robots over.
        first, count = int(values.get('first', 0)), int(values['robots'])
        check_range('parameter first', first, 0, len(named))
        check_range('parameter robots', count, 0, len(named) - first)
        # Processes that share a seed draw apart.
        rng = np.random.default_rng((int(values['seed']), first))
        drawn = draw(rng, int(values['image_width']), int(values['image_height']), pictures)
        return {robot: kind(self, RobotLog(robot, models, self._patience), models[model], drawn,
                            rng, self._on_chunk)
                for robot, model in named[first:first + count if count else None]}

    def _on_joint_timer(self) -> None:
        now_ns = self.get_clock().now().nanoseconds
        self._moves += 1
        for robot in self._active:
            robot.move(now_ns, self._moves * self._joint_period)

    def _on_chunk(self, robot: SimulatedRobot, message: ActionChunk) -> None:
        now = monotonic()
        verdict = robot.log.receive(chunk_from(message), now)
        if verdict.kind in (Kind.DUPLICATED, Kind.WRONG):
            self._on_mistake(robot, message.request, verdict)
        else:
            self._on_answer(robot, message, now)

    def _on_mistake(self, robot: SimulatedRobot, request: int, verdict: Verdict) -> None:
        """Say that a chunk was refused, and why."""
        raise NotImplementedError

    def _on_answer(self, robot: SimulatedRobot, message: ActionChunk, now: float) -> None:
        """Note a chunk that answers an observation; the robot's log has it."""


def chunk_from(message: ActionChunk) -> Chunk:
    """Return what is checked of a chunk."""
    return Chunk(message.robot, message.request, message.model,
                 from_time(message.observation_stamp), message.horizon, tuple(message.names),
                 np.asarray(message.actions), from_duration(message.engine_time))


def summary(log: RobotLog) -> str:
    """Return what a robot has got, and what it never got, in one line."""
    shown = [f'{stamp / 1e9:.3f}' for stamp in log.overdue[:SHOWN]]
    more = ', ...' if log.unanswered > len(shown) else ''
    stamps = f' (observed at {", ".join(shown)}{more})' if shown else ''
    return (f'{log.robot}: {log.sent} sent, {log.answered} answered, {log.late} of them late, '
            f'{log.unanswered} unanswered{stamps}, {log.outstanding} still awaited, '
            f'{log.duplicated} duplicated, {log.wrong} wrong')
