# SPDX-License-Identifier: Apache-2.0
"""
Times what robots lose when a server dies or hangs.

python3 benchmarks/failover.py [--signal kill] [--times 7] [--rate 2] [--robots 8] [--pause 3]
                               [--server-timeout 0.4] [--json FILE]

Runs two servers, a manager and simulated robots on the CPU as processes, and sends one of the
servers SIGKILL, or SIGSTOP and after --pause seconds SIGCONT, again and again, the other one the
next time. Prints of each time, and as median and worst, from the signal on, in s: until the
manager's assignment has no robot on that server (noticed), until half of its robots, and all of
them, got a chunk (half, served), and until all robots are where they were planned (back); and
the observations that were not answered, in all and of the robots whose server it was. Needs ROS.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
import json
import os
from pathlib import Path
import signal
from statistics import median
from threading import Thread
from time import monotonic, sleep

from factory import two_servers, until
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from robion_ros.config import FactoryConfig
from robion_ros.msg import ActionChunk, Assignment, RobotReport
from robion_ros.nodes import qos
from robion_ros.nodes.spinner import Spinner
from robion_ros.processes import factory_processes
from robion_ros.supervisor import Supervisor

SERVERS = 'server_0', 'server_1'
SETTLE = 4.0
"""After a failure, until the books of the robots are closed, s."""


class Watcher(Node):
    """When the assignment changed, and when robots got chunks."""

    def __init__(self, robots: tuple[str, ...]) -> None:
        super().__init__('watcher')
        self.seats: dict[str, str] = {}
        self.changes: list[tuple[float, Mapping[str, str]]] = []
        self.chunks: defaultdict[str, list[float]] = defaultdict(list)
        self.reports: dict[str, RobotReport] = {}
        self.create_subscription(Assignment, 'manager/assignment', self._on_assignment,
                                 qos.LATCHED_QOS)
        self.create_subscription(RobotReport, qos.ROBOT_REPORTS, self._on_report, qos.REPORTS_QOS)
        for robot in robots:
            self.create_subscription(
                ActionChunk, qos.robot_topic(robot, qos.ACTION_CHUNK),
                lambda _, robot=robot: self.chunks[robot].append(monotonic()), qos.CHUNKS_QOS)

    def faults(self) -> dict[str, int]:
        """Return the observations of each robot that were not answered once and right."""
        return {robot: report.unanswered + report.duplicated + report.wrong
                for robot, report in self.reports.items()}

    def answered(self, robot: str, since: float) -> float | None:
        """Return when a robot got its first chunk after a moment, s; None: not yet."""
        return next((when for when in self.chunks[robot] if when > since), None)

    def _on_assignment(self, assignment: Assignment) -> None:
        self.seats = {item.robot: item.server for item in assignment.robots}
        self.changes.append((monotonic(), self.seats))

    def _on_report(self, report: RobotReport) -> None:
        self.reports[report.robot] = report


def fail(supervisor: Supervisor, watcher: Watcher, server: str, pause: float,
         number: signal.Signals) -> dict[str, float]:
    """Let a server fail once; return what it cost."""
    plan = dict(watcher.seats)
    mine = [robot for robot, seat in plan.items() if seat == server]
    before = watcher.faults()
    pid = supervisor.pids[server]
    start = monotonic()
    os.kill(pid, number)
    until(lambda: server not in watcher.seats.values(), 'the failure is noticed')
    noticed = next(when for when, seats in watcher.changes
                   if when > start and server not in seats.values())
    until(lambda: all(watcher.answered(robot, start + 0.05) for robot in mine), 'all are served')
    served = sorted(watcher.answered(robot, start + 0.05) or 0.0 for robot in mine)
    if number == signal.SIGSTOP:
        sleep(max(0.0, start + pause - monotonic()))
        os.kill(pid, signal.SIGCONT)
    back = until(lambda: set(watcher.seats.values()) == set(SERVERS), 'the server is back')
    sleep(SETTLE)
    lost = {robot: count - before[robot] for robot, count in watcher.faults().items()}
    return {'noticed': noticed - start, 'half': median(served) - start,
            'served': served[-1] - start, 'back': back - start, 'lost': sum(lost.values()),
            'lost of its': sum(lost[robot] for robot in mine), 'robots': len(mine)}


def measure(words: argparse.Namespace, factory: FactoryConfig,
            path: Path) -> list[dict[str, float]]:
    """Run a factory and let it fail; return what each failure cost."""
    robots = tuple(name for names in factory.robots.values() for name in names)
    rclpy.init()
    watcher = Watcher(robots)
    spinner = Spinner(SingleThreadedExecutor())
    spinner.add_node(watcher)
    thread = Thread(target=spinner.spin)
    thread.start()
    number = signal.SIGKILL if words.signal == 'kill' else signal.SIGSTOP
    lines: list[str] = []
    try:
        with Supervisor(factory_processes(factory, path, 'info', None),
                        say=lines.append) as supervisor:
            until(lambda: set(watcher.seats.values()) == set(SERVERS)
                  and all(watcher.answered(robot, 0.0) for robot in robots), 'all are served')
            sleep(SETTLE)
            found = [fail(supervisor, watcher, SERVERS[turn % 2], words.pause, number)
                     for turn in range(words.times)]
            print(f'{sum("held up for" in line for line in lines)} times a server said that it '
                  'was held up')
            return found
    except SystemExit:
        print('\n'.join(lines[-40:]))
        raise
    finally:
        spinner.stop()
        thread.join()
        spinner.shutdown()
        watcher.destroy_node()
        rclpy.try_shutdown()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--signal', choices=['kill', 'stop'], default='kill')
    parser.add_argument('--times', type=int, default=7)
    parser.add_argument('--rate', type=float, default=2.0)
    parser.add_argument('--robots', type=int, default=8)
    parser.add_argument('--pause', type=float, default=3.0)
    parser.add_argument('--server-timeout', type=float, default=0.4)
    parser.add_argument('--json', type=Path)
    words = parser.parse_args()
    with two_servers(('models: [pick, place]',) * 2, words.rate, words.robots,
                     words.server_timeout) as (factory, path):
        load_before = os.getloadavg()[0]
        found = measure(words, factory, path)
    keys = list(found[0])
    print('  '.join(f'{key:>11}' for key in keys))
    for row in [*found, {key: median(row[key] for row in found) for key in keys},
                {key: max(row[key] for row in found) for key in keys}]:
        print('  '.join(f'{row[key]:11.3f}' for key in keys))
    print(f'the last two lines: median and worst; load average {load_before:.1f} before, '
          f'{os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores')
    if words.json:
        words.json.write_text(json.dumps({'words': {key: str(value) for key, value
                                                    in vars(words).items()},
                                          'load': os.getloadavg(), 'found': found}, indent=1))


if __name__ == '__main__':
    main()
