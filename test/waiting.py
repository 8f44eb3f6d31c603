# SPDX-License-Identifier: Apache-2.0
"""How tests wait for what other threads and processes do."""

from collections.abc import Callable
from time import monotonic, sleep

TIMEOUT = 30.0
"""So long, s, may take what takes no time on a machine that has nothing else to do."""


def holds(condition: Callable[[], object], seconds: float = TIMEOUT, step: float = 0.005,
          pause: Callable[[float], object] = sleep) -> bool:
    """Wait up to so long for something to be so, in pauses of step s; return whether it is."""
    end = monotonic() + seconds
    while not condition():
        if monotonic() > end:
            return False
        pause(step)
    return True


def until(condition: Callable[[], object], said: Callable[[], object] | str = 'it is not so',
          seconds: float = TIMEOUT, step: float = 0.005,
          pause: Callable[[float], object] = sleep) -> None:
    """Wait until something is so; where it never is, fail with what is said of it by then."""
    assert holds(condition, seconds, step, pause), said() if callable(said) else said
