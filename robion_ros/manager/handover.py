# SPDX-License-Identifier: Apache-2.0
"""
How an assignment becomes another one without losing or doubling a request: in three phases.

1. *prepare*: a server that gains a robot another living server still answers begins to listen;
   robots that nobody answers are answered at once.
2. *release*: servers let go of the robots that leave them, and say what they accepted last.
3. *take over*: the gaining servers go on from there.

In each phase a server is given its whole set of robots; one whose set does not change is not
called. Knows neither ROS nor time; waiting between the phases is the caller's.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """Where a robot is answered."""

    model: str
    server: str


@dataclass(frozen=True)
class Duty:
    """What a server does for a robot in a phase."""

    model: str
    standby: bool = False


Duties = Mapping[str, Mapping[str, Duty]]
"""By server, then robot."""


class Phases(NamedTuple):
    """The calls of a transition: for each phase the servers to call."""

    prepare: Duties
    release: Duties
    take_over: Duties


def phases(old: Mapping[str, Place], new: Mapping[str, Place], alive: Iterable[str],
           unsure: Iterable[str] = ()) -> Phases:
    """
    Return the calls that lead from old to new.

    old holds only robots that are answered now. new uses only servers that are alive. A server
    in unsure is called even if nothing changes for it: it may hold other robots than old says.
    """
    servers = sorted(alive)
    handed_over = moving(old, new, servers)
    before = {server: {robot: Duty(place.model) for robot, place in old.items()
                       if place.server == server} for server in servers}
    gained = {server: {robot: Duty(place.model, standby=robot in handed_over)
                       for robot, place in new.items() if place.server == server
                       and (robot not in old or old[robot].server != server)}
              for server in servers}
    prepared = {server: before[server] | gained[server] for server in servers}
    released = {server: {robot: duty for robot, duty in prepared[server].items()
                         if robot in new and new[robot].server == server} for server in servers}
    final = {server: {robot: Duty(place.model) for robot, place in new.items()
                      if place.server == server} for server in servers}
    known = {server: before[server] for server in servers if server not in set(unsure)}
    return Phases(_changed(known, prepared), _changed(prepared, released),
                  _changed(released, final))


def moving(old: Mapping[str, Place], new: Mapping[str, Place],
           alive: Collection[str]) -> set[str]:
    """Return the robots that one living server hands over to another."""
    return {robot for robot, place in new.items() if robot in old
            and old[robot].server != place.server and old[robot].server in alive}


def _changed(old: Duties, new: Duties) -> Duties:
    return {server: duties for server, duties in new.items() if duties != old.get(server)}
