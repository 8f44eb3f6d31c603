# SPDX-License-Identifier: Apache-2.0
"""
The books of one robot: what it sent, and what became of it.

Every observation is in exactly one place, waited for, overdue or answered, so at any time
sent == answered + unanswered + outstanding. Knows no ROS; the caller brings the time.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

import numpy as np

from robion_ros.config import ModelConfig

KEPT_ANSWERS = 1000
"""Latencies kept, the newest ones."""
MEMORY = 60.0
"""How long an observation is known after nobody waits for its answer any more, s."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """An action chunk as far as a robot checks it."""

    robot: str
    request: int
    model: str
    stamp_ns: int
    """Stamp of the observation it answers."""
    horizon: int
    names: tuple[str, ...]
    actions: np.ndarray
    """float32 [horizon * len(names)]."""
    engine_time: float
    """s."""


class Kind(Enum):
    """What a chunk was."""

    RIGHT = 'right'
    LATE = 'late'
    """Right, but after the deadline."""
    DUPLICATED = 'duplicated'
    WRONG = 'wrong'


@dataclass(frozen=True)
class Verdict:
    """What a chunk was, and why it was refused."""

    kind: Kind
    detail: str = ''


class RobotLog:
    """Counts the observations of one robot and the chunks that came back."""

    def __init__(self, robot: str, models: Mapping[str, ModelConfig], patience: float) -> None:
        """Wait patience s for an answer; models are all of the factory, by name."""
        self.robot = robot
        self.model = ''
        self.sent = self.answered = self.late = self.duplicated = self.wrong = 0
        self.latency_ms: deque[float] = deque(maxlen=KEPT_ANSWERS)
        self.overhead_ms: deque[float] = deque(maxlen=KEPT_ANSWERS)
        self._models = models
        self._patience = patience
        # Stamp -> when it was published; oldest first.
        self._waiting: dict[int, float] = {}
        self._overdue: dict[int, float] = {}
        self._answered: dict[int, float] = {}
        self._forgotten = 0
        self._newest_stamp = -1
        self._newest_request = 0

    @property
    def outstanding(self) -> int:
        """Observations that are still waited for."""
        return len(self._waiting)

    @property
    def unanswered(self) -> int:
        """Observations that were waited for in vain."""
        return len(self._overdue) + self._forgotten

    @property
    def overdue(self) -> tuple[int, ...]:
        """Stamps of the unanswered observations that are still known, ns, oldest first."""
        return tuple(self._overdue)

    def send(self, stamp_ns: int, now: float) -> None:
        """Enter an observation. A chunk names it by its stamp, so stamps have to grow."""
        if stamp_ns <= self._newest_stamp:
            raise ValueError(f'{self.robot}: the stamp {stamp_ns} of an observation is not after '
                             f'the one before, {self._newest_stamp}')
        self._newest_stamp = stamp_ns
        self._waiting[stamp_ns] = now
        self.sent += 1

    def receive(self, chunk: Chunk, now: float) -> Verdict:
        """Check a chunk and enter it; one that is not right answers nothing."""
        if chunk.robot == self.robot and chunk.stamp_ns in self._answered:
            self.duplicated += 1
            return Verdict(Kind.DUPLICATED,
                           f'observation {chunk.stamp_ns} has been answered already')
        if fault := self._fault(chunk):
            self.wrong += 1
            return Verdict(Kind.WRONG, fault)
        return self._answer(chunk, now)

    def expire(self, now: float) -> None:
        """Wait no longer for what is overdue, and forget what is long past."""
        self._overdue |= _pop_before(self._waiting, now - self._patience)
        past = now - self._patience - MEMORY
        self._forgotten += len(_pop_before(self._overdue, past))
        _pop_before(self._answered, past)

    def _fault(self, chunk: Chunk) -> str:
        """Return what is wrong with a chunk, or nothing."""
        if chunk.robot != self.robot:
            return f'it is for robot {chunk.robot!r}'
        if chunk.model not in self._models:
            return f'model {chunk.model!r} was not in the factory file when the robots started'
        if chunk.stamp_ns not in self._waiting and chunk.stamp_ns not in self._overdue:
            return f'observation {chunk.stamp_ns} was not sent, or more than {MEMORY:g} s ago'
        if chunk.request <= self._newest_request:
            return f'request {chunk.request} came after request {self._newest_request}'
        names = self._models[chunk.model].action_names
        if chunk.names != names:
            return f'its values are {", ".join(chunk.names)}, must be {", ".join(names)}'
        if chunk.horizon < 1 or chunk.actions.size != chunk.horizon * len(names):
            return (f'it has {chunk.actions.size} values, must have horizon {chunk.horizon} '
                    f'(at least 1) x {len(names)}')
        if not np.isfinite(chunk.actions).all():
            return 'not all of its values are finite'
        return ''

    def _answer(self, chunk: Chunk, now: float) -> Verdict:
        book = self._waiting if chunk.stamp_ns in self._waiting else self._overdue
        published = self._answered[chunk.stamp_ns] = book.pop(chunk.stamp_ns)
        latency = now - published
        self.answered += 1
        self.model = chunk.model
        self._newest_request = chunk.request
        self.latency_ms.append(1e3 * latency)
        self.overhead_ms.append(1e3 * (latency - chunk.engine_time))
        if latency <= self._models[chunk.model].slo:
            return Verdict(Kind.RIGHT)
        self.late += 1
        return Verdict(Kind.LATE)


def _pop_before(book: dict[int, float], moment: float) -> dict[int, float]:
    """Take out of a book what was published before a moment."""
    gone = dict(takewhile(lambda entry: entry[1] < moment, book.items()))
    for stamp in gone:
        del book[stamp]
    return gone
