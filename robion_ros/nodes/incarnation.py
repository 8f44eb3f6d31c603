# SPDX-License-Identifier: Apache-2.0
"""Which of two processes of one name goes on. Knows neither nodes nor how they hear each other."""

from dataclasses import dataclass, field
from time import time_ns

HEAR_TIME = 0.2
"""After its first word a process waits so long, s, for that of another before it does anything."""


@dataclass
class Incarnation:
    """One start of a process."""

    number: int = field(default_factory=time_ns)
    """The time of the start, ns."""
    speaks: bool = False
    """Whether others of the name can hear this one; before, it listens for them."""

    def gives_way(self, other: int) -> bool:
        """
        Return whether the process of that number goes on, and this one ends.

        Clocks of two machines need not agree, so numbers only count where both speak: who still
        listens came later.
        """
        return other < self.number or (other > self.number and not self.speaks)
