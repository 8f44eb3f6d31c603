# SPDX-License-Identifier: Apache-2.0
"""
Robot node: simulates as many robots of a factory file as asked, to try its servers with.

The robots publish pictures, joint states and an instruction as real ones would, each at its own
phase, and check every chunk that comes back; nothing moves. Not known here: what servers do.
"""

from collections import defaultdict
from math import inf
from time import monotonic

from std_srvs.srv import Trigger

from robion_ros import words
from robion_ros.config import check_range
from robion_ros.msg import Assignment, RobotReport
from robion_ros.nodes import qos
from robion_ros.nodes.camera_clock import CameraClock
from robion_ros.nodes.parameters import Parameter
from robion_ros.nodes.robot_log import RobotLog, Verdict
from robion_ros.nodes.robots import (
    CONFIG,
    LARGEST_SEED,
    LONGEST_PATIENCE,
    MESSAGES,
    RobotsNode,
    summary,
)
from robion_ros.nodes.simulated_robot import SimulatedRobot
from robion_ros.nodes.spin import run
from robion_ros.nodes.spinner import one_thread

PARAMETERS = (
    CONFIG,
    Parameter('robots', 0, 'how many of its robots, in the order of the file; 0: all'),
    Parameter('patience', 2.0, 'how long a chunk is waited for before it counts as missing, s',
              0, LONGEST_PATIENCE),
    *MESSAGES,
    Parameter('seed', 0, 'of the pictures, the joint positions and the phases', 0, LARGEST_SEED),
)

WATCH_PERIOD = 0.1
"""How often a robot looks whether it can begin, s."""
REPORT_PERIOD = 1.0
FINAL_REPORT_PERIOD = 0.5
SAY_AGAIN = 5.0
"""Time between two log lines about the same thing, s."""
SAID_EACH = 3
"""Refused chunks of a robot that are logged one by one, before SAY_AGAIN holds."""


class RobotNode(RobotsNode):
    """The simulated robots of one process: wiring between their clocks, topics and logs."""

    def __init__(self) -> None:
        super().__init__('robot', PARAMETERS)
        # Sooner than a deadline nothing is missing.
        longest_slo = max((model.slo for model in self._factory.models.values()), default=0.0)
        check_range('parameter patience', self._patience, longest_slo, LONGEST_PATIENCE)
        self._robots = self._active = list(self._populate(SimulatedRobot).values())
        self._skipped: dict[str, int] = {}
        self._finishing = False
        self._reported = -inf
        self._reports = self.create_publisher(RobotReport, qos.ROBOT_REPORTS, qos.REPORTS_QOS)
        assignment = qos.private(self._factory.manager.name, qos.ASSIGNMENT)
        self.create_subscription(Assignment, assignment, self._on_assignment, qos.LATCHED_QOS)
        self.create_service(Trigger, f'~/{qos.FINISH}', self._on_finish)
        steady = self._steady
        self._cameras = CameraClock(self, steady, self._robots, self._on_observed)
        self._watch_timer = self.create_timer(WATCH_PERIOD, self._on_watch_timer, clock=steady)
        self._waiting_timer = self.create_timer(SAY_AGAIN, self._on_waiting_timer, clock=steady)
        self.create_timer(FINAL_REPORT_PERIOD, self._on_report_timer, clock=steady)
        self.get_logger().info(words.count(len(self._robots), 'simulated robot'))

    def close(self) -> None:
        """Say what became of every observation."""
        for robot in self._robots:
            self.get_logger().info(summary(robot.log))

    def _on_assignment(self, assignment: Assignment) -> None:
        served = {item.robot for item in assignment.robots if item.server}
        for robot in self._robots:
            robot.assigned = robot.log.robot in served
            if not robot.assigned:
                robot.stop()

    def _on_watch_timer(self) -> None:
        now = monotonic()
        for robot in self._robots:
            if not robot.running:
                robot.begin(now)
        self._cameras.set()

    def _on_observed(self, robot: SimulatedRobot) -> None:
        if robot.skipped > self._skipped.get(robot.log.robot, 0):
            self._skipped[robot.log.robot] = robot.skipped
            self.get_logger().warning(
                f'{robot.log.robot} skipped {words.count(robot.skipped, "observation")} so far: '
                'this machine is too slow for so many robots', throttle_duration_sec=SAY_AGAIN)

    def _on_waiting_timer(self) -> None:
        waiting = defaultdict(list)
        for robot in self._robots:
            if not robot.running and (missing := robot.missing()):
                waiting[missing].append(robot.log.robot)
        for missing, names in waiting.items():
            self.get_logger().info(f'waiting for {", ".join(missing)}: {", ".join(names)}')

    def _on_mistake(self, robot: SimulatedRobot, request: int, verdict: Verdict) -> None:
        log = robot.log
        text = f'{log.robot}: {verdict.kind.value} chunk {request}: {verdict.detail}'
        if log.duplicated + log.wrong <= SAID_EACH:
            self.get_logger().warning(text)
        else:
            self.get_logger().warning(text, throttle_duration_sec=SAY_AGAIN)

    def _on_finish(self, request: Trigger.Request,
                   response: Trigger.Response) -> Trigger.Response:
        self._finishing = True
        for timer in (self._watch_timer, self._waiting_timer, self._joint_timer):
            timer.cancel()
        for robot in self._robots:
            robot.stop()
        outstanding = sum(robot.log.outstanding for robot in self._robots)
        return Trigger.Response(success=True, message=f'stopped; waiting up to {self._patience} s '
                                f'for {words.count(outstanding, "chunk")}, then reports are final')

    def _on_report_timer(self) -> None:
        now = monotonic()
        for robot in self._robots:
            robot.log.expire(now)
        finished = self._finishing and not any(robot.log.outstanding for robot in self._robots)
        # Final reports are repeated for those who subscribe late.
        if finished or now - self._reported > REPORT_PERIOD - FINAL_REPORT_PERIOD / 2:
            self._reported = now
            for robot in self._robots:
                self._reports.publish(report(robot.log, finished))


def report(log: RobotLog, finished: bool) -> RobotReport:
    """Return a robot's log as a message."""
    return RobotReport(
        robot=log.robot, model=log.model, sent=log.sent, answered=log.answered, late=log.late,
        duplicated=log.duplicated, wrong=log.wrong, unanswered=log.unanswered,
        latency_ms=log.latency_ms, overhead_ms=log.overhead_ms, finished=finished)


def main(args: list[str] | None = None) -> int:
    """Run a robot node."""
    return run(RobotNode, lambda _: one_thread(), __doc__ or '', PARAMETERS, args)


if __name__ == '__main__':
    raise SystemExit(main())
