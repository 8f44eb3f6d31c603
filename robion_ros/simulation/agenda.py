# SPDX-License-Identifier: Apache-2.0
"""
Virtual time: what is to happen, in order.

Knows nothing of what happens.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Happening = Callable[[float], None]
"""Takes the time at which it happens, s."""


class Agenda:
    """Happenings yet to come; those of one time happen in the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        """The time of what happens now, s."""
        self._heap: list[tuple[float, int, Happening]] = []
        self._count = count()

    def at(self, time: float, happening: Happening) -> None:
        """Let something happen then, or now if that is past."""
        heappush(self._heap, (max(time, self.now), next(self._count), happening))

    def run(self) -> None:
        """Let everything happen, and all that follows from it."""
        while self._heap:
            self.now, _, happening = heappop(self._heap)
            happening(self.now)
