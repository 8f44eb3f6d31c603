# SPDX-License-Identifier: Apache-2.0
"""
Traffic node: simulated robots that observe when an evaluation tells them to.

Plans and what became of them go through files, see traffic_files.py. Not known here: what is
evaluated, and which servers answer.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

from robion_ros.msg import ActionChunk
from robion_ros.nodes.camera_clock import CameraClock
from robion_ros.nodes.convert import from_duration, from_time
from robion_ros.nodes.parameters import Parameter
from robion_ros.nodes.robot_log import Verdict
from robion_ros.nodes.robots import (
    CONFIG,
    LARGEST_SEED,
    LONGEST_PATIENCE,
    MESSAGES,
    RobotsNode,
    summary,
)
from robion_ros.nodes.simulated_robot import SETTLE_TIME, SimulatedRobot
from robion_ros.nodes.spin import run
from robion_ros.nodes.spinner import one_thread
from robion_ros.traffic_files import Found, Observed, Plan, TrafficFiles

PARAMETERS = (
    CONFIG,
    Parameter('folder', '.', 'where plans come from and go to'),
    Parameter('first', 0, 'how many robots of the file are passed over'),
    Parameter('robots', 0, 'how many of its robots follow; 0: all'),
    Parameter('patience', 2.0, 'how long the last chunks of a plan are waited for, s',
              0, LONGEST_PATIENCE),
    *MESSAGES,
    Parameter('seed', 0, 'of the pictures and joint positions', 0, LARGEST_SEED),
)
PICTURES = 64
"""Each process draws so many; cameras show them in turn."""
WATCH_PERIOD = 0.05
"""How often files are looked for, s."""


class PlannedRobot(SimulatedRobot):
    """Observes at the times of a plan, however late it is."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.assigned = True  # Whoever plans sees to that.
        self.plan: deque[float] = deque()
        """When it observes, s of time.monotonic()."""
        self.found: dict[int, Observed] = {}
        """By stamp."""

    @property
    def due(self) -> float:
        """When the next observation is to be published, s of time.monotonic()."""
        return self.plan[0] if self.plan else inf

    def observe(self, now_ns: int) -> None:
        """Publish the observation that is due."""
        self.plan.popleft()
        stamp, published = self.publish(now_ns)
        self.found[stamp] = Observed(published)

    def waits(self, patience: float) -> bool:
        """Return whether anything is to be observed, or to be answered within patience s."""
        oldest = monotonic() - patience
        return bool(self.plan) or any(item.arrived is None and item.published > oldest
                                      for item in self.found.values())


class TrafficNode(RobotsNode):
    """The robots of one process, from plan to plan."""

    def __init__(self) -> None:
        super().__init__('traffic', PARAMETERS)
        self._folder = str(self._values['folder'])
        self._robots = self._populate(PlannedRobot, PICTURES)
        self._active: list[PlannedRobot] = []
        self._number, self._mistakes = 0, 0
        self._connected_since = inf
        self._plan: Plan = {}
        self._cameras = CameraClock(self, self._steady, list(self._robots.values()))
        self._step: Callable[[], None] = self._await_plan
        self.create_timer(WATCH_PERIOD, lambda: self._step(), clock=self._steady)

    def close(self) -> None:
        """Say what became of every observation."""
        for robot in self._robots.values():
            self.get_logger().debug(summary(robot.log))

    @property
    def _files(self) -> TrafficFiles:
        return TrafficFiles(self._folder, self._number + 1)

    def _await_plan(self) -> None:
        plan = self._files.read_plan()
        if plan is not None:
            self._plan = {name: times for name, times in plan.items() if name in self._robots}
            self._active = [self._robots[name] for name in self._plan]
            self._connected_since, self._mistakes = inf, 0
            self._step = self._await_connections

    def _await_connections(self) -> None:
        now = monotonic()
        if any(robot.missing() for robot in self._active):
            self._connected_since = inf
            return
        self._connected_since = min(self._connected_since, now)
        if now - self._connected_since >= SETTLE_TIME:
            self._files.write_ready(self.get_name())
            self._step = self._await_start

    def _await_start(self) -> None:
        start = self._files.read_start()
        if start is not None:
            for name, times in self._plan.items():
                robot = self._robots[name]
                robot.plan, robot.found = deque(start + at for at in times), {}
            self._cameras.set()
            self._step = self._await_end

    def _await_end(self) -> None:
        if any(robot.waits(self._patience) for robot in self._active):
            return
        found = {name: list(self._robots[name].found.values()) for name in self._plan}
        self._files.write_found(self.get_name(), Found(found, self._mistakes))
        for robot in self._active:
            robot.log.expire(monotonic())
        self._active = []
        self._number += 1
        self._step = self._await_plan

    def _on_mistake(self, robot: SimulatedRobot, request: int, verdict: Verdict) -> None:
        self._mistakes += 1
        self.get_logger().warning(f'{robot.log.robot}: {verdict.kind.value} chunk: '
                                  f'{verdict.detail}', throttle_duration_sec=1.0)

    def _on_answer(self, robot: SimulatedRobot, message: ActionChunk, now: float) -> None:
        assert isinstance(robot, PlannedRobot)
        stamp = from_time(message.observation_stamp)
        if stamp in robot.found:
            robot.found[stamp] = Observed(
                robot.found[stamp].published, now, from_duration(message.engine_time),
                from_duration(message.vlm_time), from_duration(message.adit_time), message.batch)


def main(args: list[str] | None = None) -> int:
    """Run a traffic node."""
    return run(TrafficNode, lambda _: one_thread(), __doc__ or '', PARAMETERS, args)


if __name__ == '__main__':
    raise SystemExit(main())
