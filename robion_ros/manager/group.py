# SPDX-License-Identifier: Apache-2.0
"""
A part of a traffic problem that shares no server and no model with the rest, in numbers.

Loads are whole numbers: of the parts that a server's time is divided into, so that each robot
takes a whole number of them. Knows no names of robots and not what makes a plan good.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import lcm

Counts = Mapping[tuple[str, str], int]
"""Robots by (server, model)."""
Rows = list[list[int]]
"""Robots by server and model, in a group's order."""


@dataclass(frozen=True)
class Group:
    """Servers and models that depend on each other."""

    servers: tuple[str, ...]
    models: tuple[str, ...]
    robots: tuple[int, ...]
    """Of each model, > 0."""
    capacities: tuple[tuple[int, ...], ...]
    """By server and model; 0: no robot of the model can go there."""
    running: tuple[tuple[int, ...], ...]
    """By server and model, the robots that are there and could stay."""
    priorities: tuple[int, ...]
    """Of each model."""

    @cached_property
    def room(self) -> tuple[int, ...]:
        """Parts of each server's time."""
        return tuple(lcm(*filter(None, row)) for row in self.capacities)

    @cached_property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Parts that a robot takes, by server and model."""
        return tuple(tuple(room // capacity if capacity else 0 for capacity in row)
                     for room, row in zip(self.room, self.capacities, strict=True))

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """Servers that each model can go to."""
        return tuple(tuple(server for server, row in enumerate(self.capacities) if row[model])
                     for model in range(len(self.models)))

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Sets of servers that take the same robots."""
        classes: dict[tuple[int, ...], list[int]] = {}
        for server, row in enumerate(self.capacities):
            classes.setdefault(row, []).append(server)
        return tuple(map(tuple, classes.values()))

    @cached_property
    def runs(self) -> int:
        """Robots that run."""
        return sum(map(sum, self.running))

    def need(self, model: int) -> float:
        """Return how many servers the robots of a model fill, at the least."""
        return self.robots[model] / max(self.capacities[host][model]
                                        for host in self.hosts[model])

    def rows(self, counts: Counts) -> Rows:
        """Return robots by server and model."""
        return [[counts.get((server, model), 0) for model in self.models]
                for server in self.servers]

    def counts(self, rows: Rows) -> dict[tuple[str, str], int]:
        """Return robots by name, only those that there are."""
        return {(server, model): count for server, row in zip(self.servers, rows, strict=True)
                for model, count in zip(self.models, row, strict=True) if count}

    def served(self, rows: Rows) -> tuple[int, ...]:
        """Return the robots of each model that have a place."""
        return tuple(map(sum, zip(*rows, strict=True)))

    def moved(self, rows: Rows) -> int:
        """Return how many of the running robots cannot stay where they are."""
        return sum(max(0, here - count)
                   for places, row in zip(self.running, rows, strict=True)
                   for here, count in zip(places, row, strict=True))

    def unit(self, worth: int | None) -> int:
        """Return how many moved robots cost as much as a pair; None: more than there are."""
        return 1 + self.runs if worth is None else worth

    def cost(self, rows: Rows, worth: int | None = None) -> int:
        """Return what is minimised: pairs, each worth so many moved robots, and robots moved."""
        return self.unit(worth) * count_pairs(rows) + self.moved(rows)


def count_pairs(rows: Rows) -> int:
    """Return the pairs of robots of different models that share a server."""
    return sum(sum(row)**2 - sum(count**2 for count in row) for row in rows) // 2


def split(robots: Mapping[str, int], places: Mapping[str, Mapping[str, int]],
          running: Counts, priorities: Mapping[str, int]) -> Iterator[Group]:
    """
    Yield the groups of a problem, in the order of their first servers.

    places are capacities >= 1 by server and model, only of models that have robots.
    """
    left = {server: set(models) for server, models in places.items() if models}
    while left:
        first = next(iter(left))
        servers, models = {first}, set(left[first])
        while more := {server for server, row in left.items() if row & models} - servers:
            servers |= more
            models.update(*(left[server] for server in more))
        names, kinds = tuple(sorted(servers)), tuple(sorted(models))
        yield Group(
            names, kinds, tuple(robots[model] for model in kinds),
            tuple(tuple(places[server].get(model, 0) for model in kinds) for server in names),
            tuple(tuple(running.get((server, model), 0) for model in kinds) for server in names),
            tuple(priorities.get(model, 0) for model in kinds))
        left = {server: row for server, row in left.items() if server not in servers}
