# SPDX-License-Identifier: Apache-2.0
"""
Robot node: simulates as many robots of a factory file as asked, to try its servers with.

The robots publish pictures, joint states and an instruction as real ones would, each at its own
phase, and check every chunk that comes back; nothing moves. Not known here: what servers do.
"""

from collections import defaultdict
from math import inf
from time import monotonic

from builtin_interfaces.msg import Time
import numpy as np
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_srvs.srv import Trigger

from robion_ros import words
from robion_ros.config import check_range
from robion_ros.factory_file import load
from robion_ros.msg import ActionChunk, Assignment, RobotReport
from robion_ros.nodes import qos
from robion_ros.nodes.camera_clock import CameraClock
from robion_ros.nodes.convert import from_duration
from robion_ros.nodes.parameters import declare, Parameter
from robion_ros.nodes.robot_log import Chunk, Kind, RobotLog
from robion_ros.nodes.simulated_robot import draw, SimulatedRobot
from robion_ros.nodes.spin import run
from robion_ros.nodes.spinner import one_thread

PARAMETERS = (
    Parameter('config', 'factory.yaml', 'path of the factory file'),
    Parameter('robots', 0, 'how many of its robots, in the order of the file; 0: all'),
    Parameter('patience', 2.0, 'how long a chunk is waited for before it counts as missing, s'),
    Parameter('joint_rate', 20.0, 'joint states of a robot per second, Hz'),
    Parameter('image_width', 224, 'columns of a picture'),
    Parameter('image_height', 224, 'rows of a picture'),
    Parameter('seed', 0, 'of the pictures, the joint positions and the phases'),
)

WATCH_PERIOD = 0.1
"""How often a robot looks whether it can begin, s."""
REPORT_PERIOD = 1.0
FINAL_REPORT_PERIOD = 0.5
SAY_AGAIN = 5.0
"""Time between two log lines about the same thing, s."""
SAID_EACH = 3
"""Refused chunks of a robot that are logged one by one, before SAY_AGAIN holds."""
SHOWN = 5
"""Unanswered observations of a robot that are named at the end."""


class RobotNode(Node):
    """The simulated robots of one process: wiring between their clocks, topics and logs."""

    def __init__(self) -> None:
        super().__init__('robot')
        self.exit_code = 0
        values = declare(self, PARAMETERS)
        factory = load(str(values['config']))
        chosen = [(robot, model) for model, robots in factory.robots.items() for robot in robots]
        count, patience = int(values['robots']), float(values['patience'])
        width, height = int(values['image_width']), int(values['image_height'])
        # Sooner than a deadline nothing is missing.
        longest_slo = max((model.slo for model in factory.models.values()), default=0.0)
        for name, value, low, high in (
                ('robots', count, 0, len(chosen)), ('patience', patience, longest_slo, 3600),
                ('joint_rate', float(values['joint_rate']), 0.1, 1000),
                ('image_width', width, 8, 8192), ('image_height', height, 8, 8192),
                ('seed', int(values['seed']), 0, 2**63 - 1)):
            check_range(f'parameter {name}', value, low, high)
        self._joint_period = 1.0 / float(values['joint_rate'])
        rng = np.random.default_rng(int(values['seed']))
        pictures = draw(rng, width, height)
        self._robots = [
            SimulatedRobot(self, RobotLog(robot, factory.models, patience),
                           factory.models[model], pictures, rng, self._on_chunk)
            for robot, model in chosen[:count or None]]
        self._patience = patience
        self._moves = 0
        self._skipped: dict[str, int] = {}
        self._finishing = False
        self._reported = -inf
        self._reports = self.create_publisher(RobotReport, qos.ROBOT_REPORTS, qos.REPORTS_QOS)
        self.create_subscription(Assignment, qos.private(factory.manager.name, qos.ASSIGNMENT),
                                 self._on_assignment, qos.LATCHED_QOS)
        self.create_service(Trigger, f'~/{qos.FINISH}', self._on_finish)
        # Robots keep their pace also where simulated time stands still or jumps.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._cameras = CameraClock(self, steady, self._robots, self._on_observed)
        self._joint_timer = self.create_timer(self._joint_period, self._on_joint_timer,
                                              clock=steady)
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

    def _on_joint_timer(self) -> None:
        now_ns = self.get_clock().now().nanoseconds
        self._moves += 1
        for robot in self._robots:
            robot.move(now_ns, self._moves * self._joint_period)

    def _on_waiting_timer(self) -> None:
        waiting = defaultdict(list)
        for robot in self._robots:
            if not robot.running and (missing := robot.missing()):
                waiting[missing].append(robot.log.robot)
        for missing, names in waiting.items():
            self.get_logger().info(f'waiting for {", ".join(missing)}: {", ".join(names)}')

    def _on_chunk(self, robot: SimulatedRobot, message: ActionChunk) -> None:
        log = robot.log
        verdict = log.receive(chunk_from(message), monotonic())
        if verdict.kind in (Kind.DUPLICATED, Kind.WRONG):
            text = f'{log.robot}: {verdict.kind.value} chunk {message.request}: {verdict.detail}'
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


def chunk_from(message: ActionChunk) -> Chunk:
    """Return what is checked of a chunk."""
    return Chunk(message.robot, message.request, message.model, ns(message.observation_stamp),
                 message.horizon, tuple(message.names), np.asarray(message.actions),
                 from_duration(message.engine_time))


def ns(message: Time) -> int:
    """Return a time in ns."""
    return int(message.sec) * 10**9 + int(message.nanosec)


def report(log: RobotLog, finished: bool) -> RobotReport:
    """Return a robot's log as a message."""
    return RobotReport(
        robot=log.robot, model=log.model, sent=log.sent, answered=log.answered, late=log.late,
        duplicated=log.duplicated, wrong=log.wrong, unanswered=log.unanswered,
        latency_ms=log.latency_ms, overhead_ms=log.overhead_ms, finished=finished)


def summary(log: RobotLog) -> str:
    """Return what a robot has got, and what it never got, in one line."""
    shown = [f'{stamp / 1e9:.3f}' for stamp in log.overdue[:SHOWN]]
    more = ', ...' if log.unanswered > len(shown) else ''
    stamps = f' (observed at {", ".join(shown)}{more})' if shown else ''
    return (f'{log.robot}: {log.sent} sent, {log.answered} answered, {log.late} of them late, '
            f'{log.unanswered} unanswered{stamps}, {log.outstanding} still awaited, '
            f'{log.duplicated} duplicated, {log.wrong} wrong')


def main(args: list[str] | None = None) -> int:
    """Run a robot node."""
    return run(RobotNode, lambda _: one_thread(), __doc__ or '', PARAMETERS, args)


if __name__ == '__main__':
    raise SystemExit(main())
