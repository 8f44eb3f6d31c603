# SPDX-License-Identifier: Apache-2.0
"""
The right of a server to answer its robots, which it holds only while its heart beats.

A manager that hears no beat for a while gives the robots to other servers. So a server that was
held up (stopped, starved, swapped out, suspended with its machine) must not answer them when it
goes on: it finds the gap in its own beats, takes a new term, and everything of the terms before is
void. Knows neither ROS nor robots; safe in every thread.
"""

from threading import Lock
import time
from time import monotonic, time_ns

SHARE = 0.75
"""Part of the manager's timeout after which a server takes itself for replaced. The rest is for
beats that travel at different speeds."""
BEATS = 8
"""In a manager's timeout."""


class Lease:
    """One server's beats, and since when they are without a gap."""

    def __init__(self, server_timeout: float) -> None:
        """Take the silence after which a manager gives a server's robots away, s."""
        self.period = server_timeout / BEATS
        """From beat to beat, s."""
        self.most_gap = SHARE * server_timeout
        self._lock = Lock()
        self._term = time_ns()
        self._since, self._beaten = monotonic(), boottime()
        self._gap = 0.0

    @property
    def term(self) -> int:
        """Grows each time that the server may have been replaced; unlike any other process'."""
        with self._lock:
            return self._term

    @property
    def gap(self) -> float:
        """How long the beats were missing when the last term but this ended, s."""
        return self._gap

    def beat(self) -> int:
        """Note that a beat is about to leave; return the term that it must carry."""
        with self._lock:
            now = boottime()
            if now - self._beaten > self.most_gap:
                self._gap = now - self._beaten
                self._term = max(time_ns(), self._term + 1)
                # Not before the lock: what came meanwhile is of the old term.
                self._since = monotonic()
            self._beaten = now
            return self._term

    def covers(self, arrived: float) -> bool:
        """
        Return whether what arrived then, s of time.monotonic(), may be answered now.

        Ask it last before answering: what holds the process up between the two is not seen.
        """
        with self._lock:
            return self._since <= arrived and boottime() - self._beaten <= self.most_gap


def boottime() -> float:
    """Return s of a clock that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC))
