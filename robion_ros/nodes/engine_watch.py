# SPDX-License-Identifier: Apache-2.0
"""
Whether an engine can still serve: its thread may have ended by a fault, or hang with its device.

Time in which this process did not run, as it was stopped, starved or held by a debugger, is no
time of a lockstep's. Knows neither ROS nor what a lockstep runs.
"""

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robion_ros.engine.engine import Engine

MANY = 10
"""So many times what the slowest took when models were tried is no lockstep's time any more."""
GAP = 1.0
"""The most that counts from one look to the next, s: in more, this process did not run."""
PATIENCE = 30
"""So many times longer may a lockstep take beside a model that is loaded: kernels are compiled,
graphs captured, memory comes and goes, and it may be that model's first."""


class EngineWatch:
    """One engine, looked at now and then."""

    def __init__(self, engine: 'Engine', hang_time: float) -> None:
        """Take how long a lockstep may take at least, s; 0: no lockstep takes too long."""
        self._engine = engine
        self._hang_time = hang_time
        self._looked = monotonic()
        self._since: float | None = None
        """When the lockstep began that ran at the last look."""
        self._counted = 0.0
        """How much of its time has been counted, s."""
        self._patience = 1

    @property
    def limit(self) -> float:
        """How long a lockstep may take, s."""
        return max(self._hang_time, MANY * self._engine.pace.longest) if self._hang_time else inf

    @property
    def left(self) -> float:
        """How much longer the lockstep that runs may take, s."""
        return self._patience * max(0.0, self.limit - self._counted)

    def look(self, loading: bool) -> str:
        """
        Return why the engine serves no more, '' if it does; call it at least every GAP s.

        loading says whether a model is loaded or let go beside it.
        """
        now, since = monotonic(), self._engine.pace.since
        passed, self._looked = min(now - self._looked, GAP), now
        self._patience = PATIENCE if loading else 1
        if not self._engine.alive:
            return 'the engine has stopped by a fault'
        if since is None or since != self._since:
            self._since, self._counted = since, 0.0
            return ''
        self._counted += passed / self._patience
        return '' if self.left else (
            f'the engine hangs, and its device with it: a lockstep has not ended in '
            f'{now - since:.0f} s')
