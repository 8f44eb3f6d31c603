# SPDX-License-Identifier: Apache-2.0
"""
How many robots of each model go to each server: an integer program, solved with CP-SAT.

Knows counts, not robots; neither who is served now nor how a robot moves (assignment.py does).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
import time

from robion_ros.manager.errors import NoServer, OverCapacity, TimeLimit
from robion_ros.manager.program import build, Found, minimise

EVEN_EFFORT = 0.2
"""Most time to break ties, s of the solver's own clock, which is the same on every machine."""


@dataclass(frozen=True)
class TrafficProblem:
    """What is to be planned."""

    robots: Mapping[str, int]
    """Robots of each model, >= 0."""
    hosts: Mapping[str, tuple[str, ...]]
    """Models loaded on each server."""
    capacities: Mapping[tuple[str, str], int]
    """Most robots of a model that a server sustains alone, by (server, model); < 1: none."""

    def __post_init__(self) -> None:
        for name, count in self.robots.items():
            if count < 0:
                raise ValueError(f'robots of {name} are {count}, must be 0 or more')
        for server, models in self.hosts.items():
            for name in models:
                if (server, name) not in self.capacities:
                    raise ValueError(f'{server} hosts {name}, but capacities has no '
                                     f'({server}, {name})')

    @property
    def places(self) -> dict[str, dict[str, int]]:
        """Capacities by server and model, sorted, where a robot of the problem could go."""
        return {server: {name: self.capacities[server, name]
                         for name in sorted(set(self.hosts[server]))
                         if self.robots.get(name, 0) and self.capacities[server, name] >= 1}
                for server in sorted(self.hosts)}


@dataclass(frozen=True)
class TrafficPlan:
    """How many robots of each model each server gets."""

    robots: Mapping[tuple[str, str], int]
    """By (server, model); only those that get one."""
    objective: int
    """Sum over servers and pairs of models of robots times robots."""
    optimal: bool
    """Whether objective is proven to be the least."""
    bound: int
    """No plan has a smaller objective than this."""
    solve_s: float = field(compare=False)


def solve(problem: TrafficProblem, time_limit: float,
          hint: TrafficPlan | None = None) -> TrafficPlan:
    """
    Find the plan that keeps each model's robots together, so that they batch.

    Data
        N_i:   robots of model i
        C_ij:  most robots of model i that server j sustains alone
    Variables
        r_ij:  robots of model i on server j, an integer >= 0, only where j hosts i
    Model
        minimise  sum_j sum_{i<k} r_ij r_kj                         (0)
        such that sum_j r_ij = N_i             for each model i     (1)
                  sum_i r_ij / C_ij <= 1       for each server j    (2)

    (2) is exact: a server at 1 is full, not over. (0) is written with the identity
    sum_{i<k} r_i r_k = ((sum r)^2 - sum r^2) / 2, which proves optima that products do not.

    Three programs are solved in turn, each beginning at the plan of the one before: serve the
    most robots, which must be all of them; minimise (0); and, where that was proven, make the
    highest load of a server least without giving up (0). One worker and a fixed seed: the same
    problem and hint give the same plan, unless time_limit, s, cuts the search short. hint is a
    plan to begin at, not one to keep.

    Raise NoServer, OverCapacity or TimeLimit if there is no plan.
    """
    started = time.monotonic()
    deadline = started + time_limit
    _check_loaded(problem)
    program = build(problem.robots, problem.places)
    most = minimise(program, -sum(program.served.values()), hint.robots if hint else {}, deadline)
    served = _by_model(most.robots) if most else Counter()
    over = Counter(problem.robots) - served
    if most is None or (over and not most.proven):
        raise TimeLimit(f'{time_limit} s were enough to place {served.total()} of '
                        f'{sum(problem.robots.values())} robots, but not to place all or to '
                        'prove that they do not fit: raise manager.time_limit')
    for name, count in program.served.items():
        program.model.add(count == served[name])
    best = (minimise(program, program.pairs, most.robots, deadline)
            or Found(most.robots, proven=False, bound=0))
    robots = best.robots
    if best.proven:
        program.model.add(program.pairs == 2 * _objective(robots))
        even = minimise(program, program.peak, robots, deadline, EVEN_EFFORT)
        robots = even.robots if even else robots
    plan = TrafficPlan(robots, _objective(robots), best.proven, max(0, ceil(best.bound / 2)),
                       time.monotonic() - started)
    if over:
        raise OverCapacity(_describe(over, problem), plan, replace(problem, robots=served))
    return plan


def _check_loaded(problem: TrafficProblem) -> None:
    """Raise NoServer if a model with robots is loaded nowhere."""
    loaded = {name for models in problem.hosts.values() for name in models}
    homeless = [_robots(count, name) for name, count in sorted(problem.robots.items())
                if count and name not in loaded]
    if homeless:
        servers = ', '.join(sorted(problem.hosts)) or 'none'
        raise NoServer(f'no server has loaded the model of {", ".join(homeless)} (servers: '
                       f'{servers}); add it to the models of a server, or start one that has it')


def _describe(over: Mapping[str, int], problem: TrafficProblem) -> str:
    """Say which robots do not fit, and the mend."""
    parts = []
    for name, count in sorted(over.items()):
        room = [max(0, problem.capacities[server, name])
                for server, models in problem.hosts.items() if name in models]
        parts.append(f'{_robots(count, name)} ({problem.robots[name]} in all; servers that have '
                     f'loaded it: {len(room)}, with room for {sum(room)} and nothing else)')
    return (f'over by {", ".join(parts)}; no plan serves more. Take these robots away, load their '
            'model on another server, or add a server')


def _robots(count: int, name: str) -> str:
    return f'{count} robot{"s" if count > 1 else ""} of {name}'


def _by_model(robots: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Return the robots of each model."""
    counts: Counter[str] = Counter()
    for (_, name), count in robots.items():
        counts[name] += count
    return counts


def _objective(robots: Mapping[tuple[str, str], int]) -> int:
    """Return the sum over servers of ((sum r)^2 - sum r^2) / 2."""
    totals: Counter[str] = Counter()
    for (server, _), count in robots.items():
        totals[server] += count
    return (sum(total**2 for total in totals.values())
            - sum(count**2 for count in robots.values())) // 2
