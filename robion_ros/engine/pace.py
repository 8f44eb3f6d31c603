# SPDX-License-Identifier: Apache-2.0
"""
How long locksteps take, and since when an engine's thread has been at the one that runs.

Knows neither batches nor stages, and not what is too long.
"""

from collections import deque
from statistics import median
from time import monotonic

HISTORY = 256
"""Locksteps whose durations are remembered."""


class Pace:
    """What an engine's thread notes of its own work; others may read it."""

    def __init__(self, longest: float) -> None:
        """Begin at rest; longest is what the slowest lockstep took when models were tried, s."""
        self.longest = longest
        """Of all locksteps in which models were tried, s."""
        self.locksteps = 0
        """How many have ended."""
        self.since: float | None = None
        """When the thread began what it is at, s of time.monotonic(); None: it is at rest."""
        self._durations: deque[float] = deque(maxlen=HISTORY)

    @property
    def usual(self) -> float:
        """The median of the last locksteps, s; 0 for none yet."""
        return median(self._durations) if self._durations else 0.0

    def go_on(self) -> float:
        """Note that the thread goes on to something else, now; return the time."""
        self.since = now = monotonic()
        return now

    def rest(self) -> None:
        """Note that there is nothing to do."""
        self.since = None

    def count(self, seconds: float, tried: bool) -> None:
        """Count a lockstep that took so long; tried: a model was tried in it."""
        self.locksteps += 1
        self._durations.append(seconds)
        if tried:
            self.longest = max(self.longest, seconds)
