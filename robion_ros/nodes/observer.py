# SPDX-License-Identifier: Apache-2.0
"""
Watches a running factory from outside: what its servers, manager and robots say, kept newest.

Lives beside other code in one process: it has a context and a thread of its own and leaves
signals alone. Changes nothing but by the two services it calls, and judges nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from typing import Any, TypeVar

import rclpy
from rclpy.client import Client
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from robion_ros.msg import (
    Assignment,
    Population,
    RobotAssignment,
    RobotReport,
    RobotStatus,
    ServerStatus,
)
from robion_ros.nodes import qos
from robion_ros.nodes.spinner import Spinner
from robion_ros.observed import Counter, Counts, Rebalanced, Report, Seat, Server, Snapshot
from robion_ros.srv import Rebalance

T = TypeVar('T')

COUNTED = tuple(Counts.__dataclass_fields__)
STATES = {ServerStatus.UNCONFIGURED: 'unconfigured', ServerStatus.INACTIVE: 'inactive',
          ServerStatus.ACTIVE: 'active', ServerStatus.CONFIGURING: 'configuring'}


class Observer:
    """What has been seen since it was made."""

    def __init__(self, servers: Iterable[str], manager: str, robots: str = '') -> None:
        """Watch servers and a manager, and finish simulated robots, if any, by names of nodes."""
        self._lock = Lock()
        self._reports: dict[str, Report] = {}
        self._servers: dict[str, Server] = {}
        self._seats: dict[str, Seat] = {}
        self._counts: dict[Counter, Counts] = {}
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node('observer', context=self._context)
        for name in servers:
            self._node.create_subscription(ServerStatus, qos.private(name, qos.STATUS),
                                           partial(self._on_status, name), qos.LATCHED_QOS)
        self._node.create_subscription(Assignment, qos.private(manager, qos.ASSIGNMENT),
                                       self._on_assignment, qos.LATCHED_QOS)
        self._node.create_subscription(RobotReport, qos.ROBOT_REPORTS, self._on_report,
                                       qos.REPORTS_QOS)
        self._rebalance = self._node.create_client(Rebalance,
                                                   qos.private(manager, qos.REBALANCE))
        self._finish = self._node.create_client(
            Trigger, qos.private(robots, qos.FINISH)) if robots else None
        self._spinner = Spinner(SingleThreadedExecutor(context=self._context))
        self._spinner.add_node(self._node)
        self._thread = Thread(target=self._spinner.spin, name='observer', daemon=True)
        self._thread.start()

    def snapshot(self) -> Snapshot:
        """Return everything seen up to now."""
        with self._lock:
            return Snapshot(dict(self._reports), dict(self._servers), dict(self._seats),
                            dict(self._counts))

    def missing(self) -> list[str]:
        """Return the services that are not there yet; to be called only once they are."""
        return [client.service_name for client in (self._rebalance, self._finish)
                if client and not client.service_is_ready()]

    def rebalance(self, populations: Mapping[str, Sequence[str]],
                  dry_run: bool = False) -> Future[Rebalanced]:
        """Ask the manager to give models new robots, by name; wait for it with a deadline."""
        request = Rebalance.Request(dry_run=dry_run, populations=[
            Population(model=model, robots=list(robots))
            for model, robots in populations.items()])
        before = self.snapshot().seats
        return call(self._rebalance, request, lambda answer: Rebalanced(
            answer.success, answer.message, answer.error_code, answer.moved, answer.objective,
            answer.optimal, answer.solve_ms, answer.apply_ms,
            count_new_servers(before, answer.robots)))

    def finish(self) -> Future[str]:
        """Tell the robots to publish no more; wait for it with a deadline."""
        assert self._finish is not None, 'no robots were named'
        return call(self._finish, Trigger.Request(), lambda answer: str(answer.message))

    def close(self) -> None:
        """End the thread and leave the ROS graph."""
        self._spinner.stop()
        self._thread.join()
        self._spinner.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def _on_status(self, name: str, status: ServerStatus) -> None:
        server = Server(
            name, status.incarnation, STATES[status.state], tuple(status.models), status.epoch,
            tuple(robot.robot for robot in status.robots if robot.state == RobotStatus.ACTIVE),
            status.waiting, status.lockstep_time.sec * 1e3 + status.lockstep_time.nanosec / 1e6)
        counts = {Counter(name, status.incarnation, robot.robot):
                  Counts(*(getattr(robot, field) for field in COUNTED))
                  for robot in status.robots}
        with self._lock:
            self._servers[name] = server
            self._counts |= counts

    def _on_assignment(self, assignment: Assignment) -> None:
        seats = {robot.robot: Seat(robot.model, robot.server) for robot in assignment.robots}
        with self._lock:
            self._seats = seats

    def _on_report(self, message: RobotReport) -> None:
        report = Report(message.robot, message.model, message.sent, message.answered,
                        message.late, message.duplicated, message.wrong, message.unanswered,
                        tuple(message.latency_ms), tuple(message.overhead_ms), message.finished)
        with self._lock:
            self._reports[message.robot] = report


def count_new_servers(before: Mapping[str, Seat], after: Iterable[RobotAssignment]) -> int:
    """Count the robots that were served before and are by another server now."""
    return sum(robot.server not in ('', seat.server) for robot in after
               if (seat := before.get(robot.robot)) and seat.server)


def call(client: Client, request: Any, read: Callable[[Any], T]) -> Future[T]:
    """Call a service; the answer, as read makes it, comes on the thread of the node."""
    answer: Future[T] = Future()

    def take(response: Any) -> None:
        if error := response.exception():
            answer.set_exception(error)
        else:
            answer.set_result(read(response.result()))
    client.call_async(request).add_done_callback(take)
    return answer
