# SPDX-License-Identifier: Apache-2.0
"""
The clock that lets simulated robots observe when they are due.

Knows of robots only when they are due.
"""

from collections.abc import Callable, Sequence
from math import inf
from time import monotonic

from rclpy.clock import Clock
from rclpy.node import Node

from robion_ros.nodes.simulated_robot import SimulatedRobot

LONGEST_SLEEP = 1.0
"""s."""


class CameraClock:
    """A timer that fires when the next robot is due."""

    def __init__(self, node: Node, clock: Clock, robots: Sequence[SimulatedRobot],
                 on_observed: Callable[[SimulatedRobot], None] = lambda robot: None) -> None:
        """Call on_observed with each robot after it has observed."""
        self._node = node
        self._robots = robots
        self._on_observed = on_observed
        self._timer = node.create_timer(LONGEST_SLEEP, self._on_timer, clock=clock)

    def set(self) -> None:
        """Take notice that robots are due at other times."""
        due = min((robot.due for robot in self._robots), default=inf)
        seconds = min(max(due - monotonic(), 1e-6), LONGEST_SLEEP)
        self._timer.timer_period_ns = int(seconds * 1e9)
        self._timer.reset()

    def _on_timer(self) -> None:
        for robot in self._robots:
            if robot.due <= monotonic():
                robot.observe(self._node.get_clock().now().nanoseconds)
                self._on_observed(robot)
        self.set()
