# SPDX-License-Identifier: Apache-2.0
"""A factory of real processes over real DDS, as an observer sees it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack

from robion_ros.nodes.observer import Observer
from robion_ros.observed import Report, Server
from robion_ros.processes import Process
from robion_ros.supervisor import Supervisor

from .waiting import until

PATIENCE = 90.0


class Factory:
    """Running processes, what those started here have said, and an observer of all."""

    def __init__(self, servers: Iterable[str], robots: Collection[str], more: int,
                 exits: ExitStack) -> None:
        """Take robots for answered that have got so many more chunks; end all with exits."""
        self.lines: list[str] = []
        self.observer = Observer(servers, 'manager', 'simulated_robots')
        self._robots, self._more, self._exits = robots, more, exits
        exits.callback(self.observer.close)

    def start(self, processes: Iterable[Process]) -> Supervisor:
        return self._exits.enter_context(Supervisor(processes, say=self.lines.append))

    def until(self, condition: Callable[[], object], what: str) -> None:
        until(condition, lambda: '\n'.join([*self.lines[-40:], f'not so: {what}']), PATIENCE, 0.05)

    @property
    def seats(self) -> Mapping[str, str]:
        """The server of each robot that has one."""
        return {robot: seat.server for robot, seat in self.observer.snapshot().seats.items()}

    @property
    def reports(self) -> Mapping[str, Report]:
        return self.observer.snapshot().reports

    def server(self, name: str) -> Server:
        return self.observer.snapshot().servers[name]

    def wait_for_answers(self) -> None:
        """Wait until every robot is answered from now on."""
        before = {robot: report.answered for robot, report in self.reports.items()}

        def answered() -> bool:
            reports = self.reports
            return all(robot in reports and reports[robot].answered
                       >= before.get(robot, 0) + self._more for robot in self._robots)
        self.until(answered, 'every robot is answered')

    def check(self) -> None:
        """Fail if a chunk was wrong or came twice."""
        reports = self.reports
        for robot in self._robots:
            assert (reports[robot].duplicated, reports[robot].wrong) == (0, 0), '\n'.join(
                [robot, *self.lines[-60:]])
