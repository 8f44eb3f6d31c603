# SPDX-License-Identifier: Apache-2.0
"""
The search for the largest number of robots that is served well enough.

Pure: knows neither robots nor how a number of them is measured.
"""

from collections.abc import Callable

MOST = 4096
"""No number is tried beyond this."""


def search(passes: Callable[[int], bool], first: int = 4, resolution: int = 1,
           most: int = MOST, tolerance: float = 0.0) -> int:
    """
    Return a count that passes, or 0, while one at most resolution above it does not pass.

    tolerance allows a part of the count instead, where that is more.

    Doubles from first while counts pass, then bisects between the last that passed and the first
    that did not; no count is asked for twice. If larger counts never pass where smaller ones
    fail, it is the largest that passes, to within resolution. most is the answer if most passes.
    """
    low, high, tried = 0, most + 1, min(first, most)
    while True:
        if passes(tried):
            low = tried
        else:
            high = tried
        if high - low <= max(resolution, tolerance * low) or low == most:
            return low
        tried = min(2 * low, most) if high > most else (low + high) // 2


def spread(largest: int) -> tuple[int, ...]:
    """Return counts that show a curve around the largest that passes, at most nine."""
    parts = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
    return tuple(sorted({max(1, round(part * max(1, largest))) for part in parts}))
