# SPDX-License-Identifier: Apache-2.0
"""
The servers as the manager sees them: heard by their status, called with deadlines and retries.

Statuses arrive on the executor's threads; call_all and wait_ready are for the planning thread,
which may wait until the process shall end. Knows neither plans nor populations.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import isclose
from threading import Condition
from time import monotonic
from typing import NamedTuple

from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import UInt64

from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes import qos
from robion_ros.nodes.absences import Absences
from robion_ros.nodes.convert import from_duration
from robion_ros.nodes.spin import STOPPED
from robion_ros.srv import AssignRobots

ATTEMPTS = 3
"""Calls of one assignment before the server is given up for now."""
FINISH_TIME = 2.0
"""So long a call is waited for when the process shall end, s."""
LOOK_PERIOD = 0.1
"""How often a wait looks whether a server is lost or the process shall end, s."""


@dataclass(frozen=True)
class Heard:
    """The newest status of a server."""

    status: ServerStatus
    received: float
    """s of time.monotonic()."""


@dataclass(frozen=True)
class Beat:
    """The newest heartbeat of a server."""

    term: int
    received: float
    """s of time.monotonic()."""


class Waited(NamedTuple):
    """What a wait for robots to be ready has come to."""

    unready: Mapping[str, str]
    """Robots that their next server has not heard, with that server."""
    lost: Collection[str]
    """Servers that do not serve any more."""
    hurried: bool
    """Whether it ended before its time, as servers were lost or the process shall end."""


class Fleet:
    """Every server of the factory file, alive or not."""

    def __init__(self, node: Node, servers: Iterable[str], server_timeout: float,
                 call_timeout: float) -> None:
        self._node = node
        self._server_timeout = server_timeout
        self._call_timeout = call_timeout
        self._changed = Condition()
        self._heard: dict[str, Heard] = {}
        self._beats: dict[str, Beat] = {}
        self._robots: dict[str, RobotStatus] = {}
        self._absences = Absences()
        self._disagreement = ''
        self._clients = {}
        for name in servers:
            node.create_subscription(ServerStatus, qos.private(name, qos.STATUS),
                                     partial(self._on_status, name), qos.LATCHED_QOS)
            node.create_subscription(UInt64, qos.private(name, qos.HEARTBEAT),
                                     partial(self._on_beat, name), qos.HEARTBEAT_QOS)
            self._clients[name] = node.create_client(AssignRobots,
                                                     qos.private(name, qos.ASSIGN))

    def alive(self, since: float = 0.0) -> dict[str, ServerStatus]:
        """
        Return the newest status of each server that serves and was heard lately.

        since leaves out statuses that were received before, s of time.monotonic().
        """
        now = monotonic()
        with self._changed:
            return {name: heard.status for name, heard in sorted(self._heard.items())
                    if heard.received >= since and heard.status.state == ServerStatus.ACTIVE
                    and self._beats_on(name, heard, now)}

    def silences(self) -> list[str]:
        """Return what to say of servers that have served and fell silent without a word."""
        now = monotonic()
        with self._changed:
            return [f'{name} is not heard any more' for name, heard in sorted(self._heard.items())
                    if heard.status.state == ServerStatus.ACTIVE
                    and not self._beats_on(name, heard, now)]

    @property
    def timeout(self) -> float:
        """The longest silence after which a server is taken as dead, s."""
        with self._changed:
            return max(map(self._timeout, self._heard.values()), default=self._server_timeout)

    def _timeout(self, heard: Heard) -> float:
        """
        Return after how long a silence a server is taken as dead, s.

        Not before it takes itself for replaced, which it does by its own factory file.
        """
        return max(self._server_timeout, from_duration(heard.status.server_timeout))

    def disagreement(self) -> str:
        """Return, and log once, which living servers have another server_timeout, '' for none."""
        others = {name: said for name, status in self.alive().items()
                  if (said := from_duration(status.server_timeout))
                  and not isclose(said, self._server_timeout)}
        found = '; '.join(
            f'{name} has manager.server_timeout {said:g} s, this manager '
            f'{self._server_timeout:g} s, and the longer one counts: give both the same factory '
            'file and restart whichever had the wrong one' for name, said in others.items())
        if found and found != self._disagreement:
            self._node.get_logger().warning(found)
        self._disagreement = found
        return found

    def _beats_on(self, name: str, heard: Heard, now: float) -> bool:
        """Return whether a server was heard lately, in the term of its newest status."""
        beat, lately = self._beats.get(name), now - self._timeout(heard)
        if beat is None:
            return heard.received >= lately
        return beat.term == heard.status.term and max(heard.received, beat.received) >= lately

    def robots(self) -> dict[str, RobotStatus]:
        """Return the newest status of each robot at whichever server got farthest with it."""
        with self._changed:
            return dict(self._robots)

    def forget(self, present: Container[str]) -> None:
        """Forget robots that have not been present for long."""
        with self._changed:
            self._absences.forget(self._robots, lambda robot: robot.last_request, present)

    def epoch(self) -> int:
        """Return the greatest epoch that any server has seen."""
        with self._changed:
            return max((heard.status.epoch for heard in self._heard.values()), default=0)

    def wait_ready(self, standbys: Mapping[str, str], epochs: Mapping[str, int],
                   servers: Collection[str], timeout: float) -> Waited:
        """
        Wait until each robot is ready at its server, but no longer than timeout s.

        A robot that has sent frames to its next server and hears it loses nothing by the move.
        Statuses from before a server took the epoch it was given last do not count: it may have
        had the robot, and let it go, since. If one of servers is lost its robots wait for a new
        plan, so nobody waits here any longer.
        """

        def missing() -> dict[str, str]:
            ready = {(name, robot.robot) for name, heard in self._heard.items()
                     if heard.status.epoch >= epochs.get(name, 0)
                     for robot in heard.status.robots if robot.ready}
            return {robot: server for robot, server in standbys.items()
                    if (server, robot) not in ready}

        def lost() -> set[str]:
            return set(servers) - self.alive().keys()
        with self._changed:
            self._wait_for(lambda: not missing() or lost() or STOPPED.is_set(), timeout)
            gone = lost()
            return Waited(missing(), gone, bool(gone) or STOPPED.is_set())

    def call_all(self, requests: Mapping[str, AssignRobots.Request]
                 ) -> dict[str, AssignRobots.Response | None]:
        """
        Call servers side by side, each up to ATTEMPTS times; None where no answer came.

        A server that is silent in all is not called again. What was called is waited for a while
        also when the process shall end: who was told to let go must be followed.
        """
        answers: dict[str, AssignRobots.Response | None] = dict.fromkeys(requests)
        waiting = set(requests)
        for _ in range(ATTEMPTS):
            futures = {name: self._clients[name].call_async(requests[name]) for name in waiting}
            self._wait_for_all(futures)
            for name, future in futures.items():
                if future.done() and future.exception() is None:
                    answers[name] = future.result()
                else:
                    self._clients[name].remove_pending_request(future)
            waiting = {name for name in self.alive() if name in waiting and answers[name] is None}
            if not waiting or STOPPED.is_set():
                break
        return answers

    def _wait_for_all(self, futures: Mapping[str, Future]) -> None:
        for future in futures.values():
            future.add_done_callback(self._notify)

        def over() -> bool:
            alive = self.alive()
            return all(future.done() or name not in alive for name, future in futures.items())
        with self._changed:
            self._wait_for(over, self._call_timeout)

    def _wait_for(self, condition: Callable[[], object], timeout: float) -> None:
        """Wait for a condition, at most timeout s; call with _changed held."""
        end = monotonic() + timeout
        while not condition() and (left := end - monotonic()) > 0:
            self._changed.wait(min(left, LOOK_PERIOD))
            if STOPPED.is_set():
                end = min(end, monotonic() + FINISH_TIME)

    def _notify(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def _on_beat(self, name: str, beat: UInt64) -> None:
        with self._changed:
            self._beats[name] = Beat(beat.data, monotonic())

    def _on_status(self, name: str, status: ServerStatus) -> None:
        with self._changed:
            self._heard[name] = Heard(status, monotonic())
            # Kept when its server starts again and knows nothing: request numbers must go on.
            self._robots |= {
                robot.robot: robot for robot in status.robots
                if robot.robot not in self._robots
                or robot.last_request >= self._robots[robot.robot].last_request}
            self._changed.notify_all()
