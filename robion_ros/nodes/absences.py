# SPDX-License-Identifier: Apache-2.0
"""
Which robots are to be forgotten, since they have been gone for long: names come and go for years.

What must outlive a robot's absence is its last request number, as numbers have to grow. Those of
a robot that nobody knows begin with the time (transition.py), so an old number may be forgotten.
Knows nothing else of robots.
"""

from collections.abc import Callable, Container
from time import monotonic, time_ns
from typing import TypeVar

Known = TypeVar('Known')

FORGET_TIME = 86400.0
"""So long, s, a robot is remembered; more than the clocks of two machines differ."""


class Absences:
    """Since when robots that are remembered have been gone."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def forget(self, robots: dict[str, Known], number: Callable[[Known], int],
               present: Container[str]) -> None:
        """
        Forget robots that have not been present for long; call it now and then.

        number gives the last request number of what is known of a robot.
        """
        now, old = monotonic(), time_ns() // 10**6 - 1e3 * FORGET_TIME
        self._since = {robot: self._since.get(robot, now) for robot in robots
                       if robot not in present}
        for robot, since in self._since.items():
            if now - since > FORGET_TIME and number(robots[robot]) < old:
                del robots[robot]
