# SPDX-License-Identifier: Apache-2.0
"""
When the manager plans: when it knows for sure who is there, and that is not as it should be.

Knows neither robots nor plans. Used on the planning thread alone, but for look.
"""

from collections.abc import Collection, Mapping
from math import inf
from time import monotonic

from robion_ros.msg import ServerStatus

RECOVERY_TIME = 5.0
"""So long after its start, s, a manager waits to hear every server if one of them was assigned
robots before: another may be answering some, too. It takes DDS 3 s to repeat an announcement."""

LISTEN_TIME = 3.0
"""So long after its start, s, a manager listens for another of its name if servers say that they
were assigned robots."""

Signature = frozenset[tuple[str, int, int]]
"""Living servers, their incarnations and terms."""


class Watch:
    """The servers as of the last plan, compared with those that are alive now."""

    def __init__(self, servers: Collection[str], server_timeout: float,
                 settle_time: float) -> None:
        self._servers = servers
        self._server_timeout = server_timeout
        self._settle_time = settle_time
        self._started = self._looked = self._seen_since = monotonic()
        self._patient_until = -inf
        self._seen: Signature = frozenset()
        self._planned: Signature | None = None
        """The servers of the last plan, in force or not; None: there was none yet."""
        self._obedient: Signature = frozenset()
        """Those of them that did as told."""
        self._retry_at = inf

    def obedient(self, alive: Mapping[str, ServerStatus]) -> set[str]:
        """Return the living servers that have done as told since they started."""
        return {name for name, *_ in signature(alive) & self._obedient}

    def distrust(self, names: Collection[str]) -> None:
        """Take servers as not obedient, and plan again."""
        self._obedient = frozenset(item for item in self._obedient if item[0] not in names)
        if names:
            self._retry_at = -inf

    def look(self, longest: float = 0.0) -> None:
        """
        Note that servers are heard; call it often, on the thread that hears them.

        longest is the longest silence, s, after which a server is taken as dead, if there is one
        for which that is not the server_timeout.
        """
        now = monotonic()
        if now - self._looked > self._server_timeout / 2:
            self._patient_until = now + max(self._server_timeout, longest) / 2
        self._looked = now

    def doubt(self, alive: Mapping[str, ServerStatus]) -> str:
        """Return why it is not sure who is there, '' if it is; call before every plan."""
        now = monotonic()
        if now < self._patient_until or now - self._looked > self._server_timeout / 2:
            return 'the manager was held up and listens who is there; ask again in a second'
        if self._planned is not None:
            return ''
        if not alive:
            return 'no server has been heard yet; ask again in some seconds'
        if not any(status.epoch for status in alive.values()):
            return ''
        if now - self._started < LISTEN_TIME:
            return ('the manager has just started and listens whether another of its name is '
                    'there; ask again in some seconds')
        missing = [name for name in self._servers if name not in alive]
        if missing and now - self._started < RECOVERY_TIME:
            return (f'the manager has just started and not yet heard of {", ".join(missing)}, '
                    'which may be serving; ask again in some seconds')
        return ''

    def due(self, alive: Mapping[str, ServerStatus]) -> bool:
        """Return whether it is time to plan for the living servers."""
        now = monotonic()
        seen = signature(alive)
        if seen != self._seen:
            self._seen, self._seen_since = seen, now
        # Not at once at the start: another manager of this name may still be heard.
        complete = (len(alive) == len(self._servers)
                    and now - self._started >= self._settle_time)
        settled = complete or now - self._seen_since >= self._settle_time
        planned = self._planned or frozenset()
        return bool(planned - seen or (settled and seen - planned) or now >= self._retry_at)

    def planned(self, alive: Mapping[str, ServerStatus], obedient: Collection[str],
                again: bool) -> None:
        """Note a plan for the living servers, which of them obeyed, and whether to try again."""
        self._planned = signature(alive)
        self._obedient = frozenset(item for item in self._planned if item[0] in obedient)
        self._retry_at = monotonic() + self._settle_time if again else inf


def signature(alive: Mapping[str, ServerStatus]) -> Signature:
    """Return which processes the living servers are, in which of their terms."""
    return frozenset((name, status.incarnation, status.term) for name, status in alive.items())
