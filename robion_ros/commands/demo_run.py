# SPDX-License-Identifier: Apache-2.0
"""
The acts of a demo, from the first process to the last report.

Knows neither arguments nor files. Every wait ends at once when the user wants to end.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from robion_ros.commands.demo_factory import Populations
from robion_ros.commands.live import Screen
from robion_ros.commands.stop import Stop
from robion_ros.config import FactoryConfig
from robion_ros.manager.planner import FactoryPlan
from robion_ros.nodes.observer import Observer
from robion_ros.observed import Rebalanced, Snapshot
from robion_ros.supervisor import Supervisor

START_TIMEOUT = 60.0
"""Until every robot has got its first chunk, s."""
SECOND_TRY = 2.0
"""After which a rebalance that a manager in doubt refused is asked for again, s."""
REBALANCE_TIMEOUT = 15.0
FINISH_TIMEOUT = 10.0
REFRESH_PERIOD = 0.5
WATCH_PERIOD = 0.1
SHOWN = 8
"""Names in a line."""

Missing = Callable[[Snapshot], Sequence[str]]
"""Return the names of what is still missing."""


@dataclass(frozen=True)
class Script:
    """What a demo is about to do."""

    factory: FactoryConfig
    path: Path
    """Of the factory file."""
    plan: FactoryPlan
    populations: Populations
    """The robots of models from half way on."""
    seconds: float
    """How long the robots are served."""


class Interrupted(Exception):
    """The user wants to end."""


class NotServed(Exception):
    """The demo cannot go on; the message says what is missing."""


class DemoRun:
    """One demo: what it has done so far, and what went wrong beside the figures."""

    def __init__(self, script: Script, supervisor: Supervisor, observer: Observer,
                 screen: Screen, stop: Stop) -> None:
        self.rebalances: list[Rebalanced] = []
        self.faults: list[str] = []
        self._servers = tuple(script.factory.servers)
        self._robots = tuple(script.plan.places)
        self._spread = len({place.server for place in script.plan.places.values()})
        self._script = script
        self._supervisor = supervisor
        self._observer = observer
        self._screen = screen
        self._stop = stop

    def wait_until_served(self) -> None:
        """Wait until every robot has got a chunk."""
        deadline = monotonic() + START_TIMEOUT
        for what, missing in (
                ('servers', self._unserving), ('services', lambda _: self._observer.missing()),
                ('a server for', self._unseated), ('robots on', self._idle),
                ('the first chunk of', self._unanswered)):
            if names := missing(self._observer.snapshot()):
                self._screen.say(f'waiting for {what} {join(names)}')
            self._wait_for(what, missing, deadline, unharmed=True)

    def serve(self) -> None:
        """Let the robots be served, and change their models half way."""
        begin = monotonic()
        self._watch(begin, self._script.seconds / 2)
        answer = self._rebalance()
        self._watch(begin, min(self._script.seconds / 2 + SECOND_TRY, self._script.seconds))
        if self.rebalances and self.rebalances[-1].error_code == Rebalanced.NO_SERVER:
            answer = self._rebalance()  # The manager was held up, as on a busy machine.
        self._watch(begin, self._script.seconds)
        self._expect('the answer of', lambda _: [] if answer.done() else ['the manager'],
                     REBALANCE_TIMEOUT)
        if self.rebalances and not self.rebalances[-1].success:
            self.faults.append(f'the rebalance failed: {self.rebalances[-1].message}')

    def finish(self) -> None:
        """Let the robots wait for their last chunks, and see whether everybody is still there."""
        self._observer.finish()
        self._screen.show('waiting for the last chunks', self._observer.snapshot())
        self._expect('the last report of', self._unfinished, FINISH_TIMEOUT)
        self._screen.show(f'{self._script.seconds:g} s, and the last chunks',
                          self._observer.snapshot())
        self.faults += self._dead()

    def _watch(self, begin: float, until: float) -> None:
        while (elapsed := monotonic() - begin) < until:
            self._screen.show(f'{elapsed:.0f} s of {self._script.seconds:g} s',
                              self._observer.snapshot())
            self._pause(min(REFRESH_PERIOD, until - elapsed))

    def _rebalance(self) -> Future[Rebalanced]:
        self.rebalances.clear()
        answer = self._observer.rebalance(self._script.populations)
        answer.add_done_callback(self._on_rebalanced)
        return answer

    def _on_rebalanced(self, answer: Future[Rebalanced]) -> None:
        """Take the manager's answer; on the observer's thread."""
        result = answer.result()
        self.rebalances.append(result)
        self._screen.note(f'rebalance: {result.message}')
        if result.success:
            self._screen.note(f'rebalance: {result.to_another_server} to another server; solved '
                              f'in {result.solve_ms:.0f} ms, in force after '
                              f'{result.apply_ms:.0f} ms')

    def _expect(self, what: str, missing: Missing, timeout: float) -> None:
        """Wait; what does not come is a fault, but the demo goes on."""
        try:
            self._wait_for(what, missing, monotonic() + timeout)
        except NotServed as error:
            self.faults.append(str(error))

    def _wait_for(self, what: str, missing: Missing, deadline: float,
                  unharmed: bool = False) -> None:
        """Wait until nothing is missing; unharmed: and as long as every process runs."""
        while names := missing(self._observer.snapshot()):
            dead = unharmed and (self._supervisor.over
                                 or any(self._supervisor.restarts.values()))
            if dead or monotonic() >= deadline:
                raise NotServed('; '.join([f'waited in vain for {what} {join(names)}',
                                           *self._dead()]))
            self._pause(WATCH_PERIOD)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Interrupted

    def _unserving(self, seen: Snapshot) -> list[str]:
        return [name for name in self._servers
                if name not in seen.servers or seen.servers[name].state != 'active']

    def _unseated(self, seen: Snapshot) -> list[str]:
        return [robot for robot in self._robots
                if robot not in seen.seats or not seen.seats[robot].server]

    def _idle(self, seen: Snapshot) -> list[str]:
        """Return servers that get robots yet: those that came first have got them all."""
        busy = {seat.server for seat in seen.seats.values()}
        return [name for name in self._servers if name not in busy and len(busy) < self._spread]

    def _unanswered(self, seen: Snapshot) -> list[str]:
        return [robot for robot in self._robots
                if robot not in seen.reports or not seen.reports[robot].answered]

    def _unfinished(self, seen: Snapshot) -> list[str]:
        return [robot for robot in self._robots
                if robot not in seen.reports or not seen.reports[robot].finished]

    def _dead(self) -> list[str]:
        """Return which processes have ended before their time."""
        running = self._supervisor.pids
        return [f'{name} ended before its time' for name, restarts
                in self._supervisor.restarts.items() if restarts or name not in running]


def join(names: Sequence[str]) -> str:
    """Return names for a line."""
    more = f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''
    return ', '.join(names[:SHOWN]) + more
