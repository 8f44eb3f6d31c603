# SPDX-License-Identifier: Apache-2.0
"""
What befalls a simulated factory: servers die and come back, populations change.

Loads nothing heavy, so that arguments can be described from it. Knows neither servers nor models.
"""

from dataclasses import dataclass
from math import inf
import re


@dataclass(frozen=True)
class Kill:
    """A server dies, and may come back; s since the part that counts began."""

    server: str
    at: float
    back: float = inf
    """When it serves again, loaded and ready."""


@dataclass(frozen=True)
class Change:
    """A model has so many robots from then on, s since the part that counts began."""

    model: str
    count: int
    at: float = 0.0
    """0: from the first request on."""


def read_kill(text: str) -> Kill:
    """Read SERVER@SECONDS[:BACK_AT]; raise ValueError with what is wrong."""
    server, at, times = text.rpartition('@')
    first, colon, back = times.partition(':')
    try:
        kill = Kill(server, float(first), float(back) if colon else inf)
    except ValueError:
        kill = Kill('', 0)
    if not server or not at or not kill.server:
        raise ValueError(f'{text!r} is not like server_1@20 or server_1@20:45')
    if not 0 < kill.at < kill.back:
        raise ValueError(f'{text!r}: must die after 0 s and come back after that')
    return kill


def read_change(text: str) -> Change:
    """Read MODEL=N[@SECONDS]; raise ValueError with what is wrong."""
    found = re.fullmatch(r'([^=@]+)=([0-9]+)(?:@([0-9]+(?:\.[0-9]*)?))?', text)
    if not found:
        raise ValueError(f'{text!r} is not like pick=120 or pick=120@30')
    return Change(found[1], int(found[2]), float(found[3] or 0))
