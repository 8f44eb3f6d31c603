# SPDX-License-Identifier: Apache-2.0
"""
How long locksteps take: as a profile has it or as they were seen, times how slow the machine is.

From it follows when a batch that starts now would be finished. Knows neither queues nor threads
(the engine holds the lock).
"""

from collections import deque
from collections.abc import Callable, Mapping
from math import inf

from robion_ros.engine.profile import Load

Durations = Mapping[tuple[Load, Load | None], float]
"""Time of a lockstep by what its VLM stage and, if any, its ADiT stage run, s."""

Finish = Callable[[Load], float]
"""When a batch that starts now would have its chunks, s of time.monotonic()."""

FRESH = 1.0
"""How long the times of a model hold without a lockstep of it that confirms them, s."""
RECENT, BURST = 50, 5
"""Locksteps that say how slow the machine is, and how many slow ones among them say nothing."""
SPREAD = 0.05
"""By so much of the least do locksteps differ on a machine that is not slow."""


class LockstepTimes:
    """The least that each lockstep is known to take, and how slow the machine is now."""

    def __init__(self, stored: Durations) -> None:
        """Begin with the times of a profile."""
        self._least = dict(stored)
        self._slowness = deque([1.0], RECENT)
        """How many times the least the last locksteps took."""
        self._confirmed: dict[str, float] = {}

    def learn(self, vlm: Load | None, adit: Load | None, seconds: float, now: float) -> None:
        """Let a lockstep that ended well, now, correct the times."""
        if vlm:
            least = min(seconds, self._least.get((vlm, adit), seconds))
            self._least[vlm, adit] = least
            self._slowness.append(seconds / least)
        self._confirmed.update({load.model: now for load in (vlm, adit) if load})

    def know(self, stored: Durations) -> None:
        """Take the times of a profile for models that have come."""
        self._least = {**stored, **self._least}

    def forget(self, model: str) -> None:
        """Forget the times of a model that is gone: another one may get its name."""
        self._least = {loads: seconds for loads, seconds in self._least.items()
                       if model not in [load.model for load in loads if load]}
        self._confirmed.pop(model, None)

    def least(self, loads: tuple[Load | None, Load | None]) -> float:
        """
        Return the least that a lockstep takes on a machine as slow as it is, s.

        Infinity if nothing is known. A machine that all of the last locksteps have found slower
        than ever before, a GPU that is throttled, say, is so for the next one, too.
        """
        slowness = max(1.0, min(self._slowness) - SPREAD)
        return slowness * self._least.get(loads, inf)  # type: ignore[arg-type]

    def foresee(self, start: float, beside: Load | None) -> Finish:
        """
        Return when batches that start beside an ADiT stage, if there is one, would end.

        The second lockstep of a batch is taken to be one of two batches like it, and its chunks
        to be there no sooner than that ends. Both are a little long, and must be: under
        overload the next request to be served can always only just be met.

        Times of a model that no lockstep confirms count for nothing: or one slow spell, or a
        wrong profile, would have all its requests given up, and with them the locksteps that
        could correct it, for ever.
        """
        slowness = sorted(self._slowness)[-1 - BURST:][0]

        def finish(load: Load) -> float:
            if start - self._confirmed.get(load.model, -inf) >= FRESH:
                return start
            return start + slowness * (self._least.get((load, beside), 0.0)
                                     + self._least.get((load, load), 0.0))
        return finish


def never_late(load: Load) -> float:
    """Expect every batch to be in time."""
    return -inf
