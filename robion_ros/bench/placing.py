# SPDX-License-Identifier: Apache-2.0
"""
Ways to divide one population of robots among servers: the manager's, and simple ones.

Populations are drawn, so that the servers have much to do and models differ. Knows neither traffic
nor what a server is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from random import Random

from robion_ros.bench.arrivals import Robot
from robion_ros.bench.settings import BenchError
from robion_ros.manager.errors import Unserved
from robion_ros.manager.group import count_pairs, Counts, Group, Rows, split
from robion_ros.manager.packing import separate, spread
from robion_ros.manager.traffic import solve, TrafficProblem

LEAST, MOST = 0.3, 1.7
"""Share of a model in the servers' time, beside the others' and before all are scaled."""


@dataclass(frozen=True)
class Placing:
    """How many robots of each model each server gets."""

    way: str
    robots: Counts
    """By (server, model)."""
    objective: int
    """Pairs of robots of different models on a server."""
    loads: Mapping[str, Fraction]
    """By server; over 1: more than it sustains."""


def draw_robots(hosts: Mapping[str, Sequence[str]], capacities: Counts, fill: float,
                seed: int) -> dict[str, int]:
    """
    Draw how many robots of each model there are, one at the least.

    Were every model's robots divided among servers in the relation of its capacities, all of
    these would be loaded to about the part fill.
    """
    random = Random(f'placing {seed}')
    models = sorted({model for loaded in hosts.values() for model in loaded})
    shares = {model: random.uniform(LEAST, MOST) for model in models}
    scale = fill * len(hosts) / sum(shares.values())
    return {model: max(1, int(shares[model] * scale * _typical(model, hosts, capacities)))
            for model in models}


def _typical(model: str, hosts: Mapping[str, Sequence[str]], capacities: Counts) -> float:
    """Return the mean capacity of a model where it is loaded."""
    found = [capacities[server, model] for server, loaded in hosts.items() if model in loaded]
    return sum(found) / len(found)


def place_all(problem: TrafficProblem, time_limit: float) -> list[Placing]:
    """Divide the robots in every way; raise BenchError where not all of them fit."""
    try:
        planned = solve(problem, time_limit).robots
    except Unserved as error:
        raise BenchError(f'these robots cannot all be served: {error}; take a lower --fill'
                         ) from None
    ways = {'manager': planned, **{name: _gather(problem, make) for name, make in SIMPLE.items()}}
    return [_describe(way, counts, problem) for way, counts in ways.items()]


def whole(group: Group) -> Rows:
    """Give each model, the largest first, to the one server that is loaded least, full or not."""
    rows = [[0] * len(group.models) for _ in group.servers]
    loads = [Fraction()] * len(group.servers)
    for model in sorted(range(len(group.models)), key=lambda model: -group.need(model)):
        added = {server: Fraction(group.robots[model], group.capacities[server][model])
                 for server in group.hosts[model]}
        server = min(added, key=lambda server: loads[server] + added[server])
        rows[server][model] = group.robots[model]
        loads[server] += added[server]
    return rows


SIMPLE: Mapping[str, Callable[[Group], Rows]] = {
    'even split': spread, 'whole models': whole, 'one model each': separate}


def _gather(problem: TrafficProblem, make: Callable[[Group], Rows]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for group in split(problem.robots, problem.places, {}, {}):
        counts |= group.counts(make(group))
    return counts


def _describe(way: str, counts: Counts, problem: TrafficProblem) -> Placing:
    of_server = partial(_of_server, counts)
    loads = {server: sum((Fraction(count, problem.capacities[server, model])
                          for model, count in of_server(server).items()), Fraction())
             for server in problem.hosts}
    pairs = count_pairs([list(of_server(server).values()) for server in problem.hosts])
    return Placing(way, counts, pairs, loads)


def _of_server(counts: Counts, wanted: str) -> dict[str, int]:
    return {model: count for (server, model), count in counts.items() if server == wanted}


def name_robots(robots: Mapping[str, int], slos: Mapping[str, float]) -> tuple[Robot, ...]:
    """Return the robots of each model; each has the same name and place in every way."""
    return tuple(Robot(f'{model}_{index + 1}', model, slos[model])
                 for model, count in robots.items() for index in range(count))


def seat(robots: Sequence[Robot], counts: Counts) -> dict[str, str]:
    """Return the server of each robot that has one."""
    left = dict(counts)
    seats = {}
    for robot in robots:
        server = next((server for (server, model), count in left.items()
                       if model == robot.model and count), None)
        if server is not None:
            seats[robot.name] = server
            left[server, robot.model] -= 1
    return seats
