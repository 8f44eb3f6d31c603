# SPDX-License-Identifier: Apache-2.0
"""
How many robots of each model go to each server: an integer program, searched and solved exactly.

Knows counts, not robots; neither which robot it is that moves nor how (assignment.py does).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
import time

from robion_ros.manager.errors import NoServer, OverCapacity, TimeLimit, Unserved
from robion_ros.manager.group import count_pairs, Counts, Group, Rows, split
from robion_ros.manager.optimise import finish, search, serve_most
from robion_ros.manager.shortage import describe_homeless, describe_over

SEARCH = 0.5
"""Part of the time that searches may take; proofs have the rest."""


@dataclass(frozen=True)
class TrafficProblem:
    """What is to be planned."""

    robots: Mapping[str, int]
    """Robots of each model, >= 0."""
    hosts: Mapping[str, tuple[str, ...]]
    """Models loaded on each server."""
    capacities: Counts
    """Most robots of a model that a server sustains alone, by (server, model); < 1: none."""
    running: Counts = field(default_factory=dict)
    """Robots that are served now and could stay, by (server, model)."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of models: where not all fit, those of a higher one are served first; default: 0."""

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

    robots: Counts
    """By (server, model); only those that get one."""
    objective: int
    """Sum over servers and pairs of models of robots times robots."""
    optimal: bool
    """Whether objective is proven to be the least."""
    bound: int
    """No plan has a smaller objective than this."""
    solve_s: float = field(compare=False)


def solve(problem: TrafficProblem, time_limit: float,
          watch: Callable[[int], None] | None = None) -> TrafficPlan:
    """
    Find the plan that keeps each model's robots together, so that they batch.

    Data
        N_i:   robots of model i
        C_ij:  most robots of model i that server j sustains alone
        R_ij:  robots of model i that run on server j now
    Variables
        r_ij:  robots of model i on server j, an integer >= 0, only where j hosts i
    Model
        minimise  sum_j sum_{i<k} r_ij r_kj                         (0)
        then      sum_ij max(0, R_ij - r_ij), the robots moved      (0a)
        then      max_j sum_i r_ij / C_ij, the highest load         (0b)
        such that sum_j r_ij = N_i             for each model i     (1)
                  sum_i r_ij / C_ij <= 1       for each server j    (2)

    (2) is exact: a server at 1 is full, not over. (0) is written with the identity
    sum_{i<k} r_i r_k = ((sum r)^2 - sum r^2) / 2, which proves optima that products do not.

    Servers that share no model, not even through others, are planned apart. Each group is packed,
    improved by a local search, which finds the optimum of most, and proven by CP-SAT. Where time
    does not suffice for the proof, (0a) and (0b) are only searched for, and a plan near R is kept
    unless another one found saves more pairs than it moves robots. The same problem gives the same
    plan, unless time_limit, s, cuts the search short. watch is told the objective of every better
    plan at once, and at last of that plan.

    Raise errors.Unserved, with the plan that serves the most robots, if not all can be served:
    NoServer, OverCapacity or, where time did not suffice to prove it, TimeLimit.
    """
    started = time.monotonic()
    deadline = started + time_limit
    groups = sorted(split(problem.robots, problem.places, problem.running, problem.priorities),
                    key=lambda group: len(group.servers) * len(group.models))
    fitting: list[Group] = []
    plans: list[list[Rows]] = []
    proven = True
    for index, group in enumerate(groups):
        known, most = serve_most(group, _share(deadline, len(groups) - index))
        proven = proven and most
        fitting.append(replace(group, robots=group.served(known[0])))
        plans.append(known)
    best = [min(map(count_pairs, known)) for known in plans]

    def tell(index: int, rows: Rows) -> None:
        best[index] = count_pairs(rows)
        if watch:
            watch(sum(best))
    now = time.monotonic()
    middle = now + SEARCH * (deadline - now)
    found = [search(group, known, _share(middle, len(groups) - index), partial(tell, index))
             for index, (group, known) in enumerate(zip(fitting, plans, strict=True))]
    solved = [finish(group, *pair, _share(deadline, len(groups) - index), partial(tell, index))
              for index, (group, pair) in enumerate(zip(fitting, found, strict=True))]
    robots: dict[tuple[str, str], int] = {}
    for group, part in zip(fitting, solved, strict=True):
        robots |= group.counts(part.rows)
    plan = TrafficPlan(dict(sorted(robots.items())), sum(best),
                       all(part.proven for part in solved), sum(part.bound for part in solved),
                       time.monotonic() - started)
    served = {name: count for group in fitting
              for name, count in zip(group.models, group.robots, strict=True)}
    _check_served(problem, replace(problem, robots={
        name: served.get(name, 0) for name in problem.robots}), plan, proven, time_limit)
    return plan


def _share(deadline: float, groups: int) -> float:
    """Return when the first of so many groups must be done."""
    now = time.monotonic()
    return now + (deadline - now) / groups


def _check_served(problem: TrafficProblem, fitting: TrafficProblem, plan: TrafficPlan,
                  proven: bool, time_limit: float) -> None:
    """Raise Unserved if the plan leaves robots out."""
    over = {name: count - fitting.robots[name] for name, count in problem.robots.items()
            if count > fitting.robots[name]}
    if not over:
        return
    loaded = {name for models in problem.hosts.values() for name in models}
    error: type[Unserved] = OverCapacity if proven else TimeLimit
    parts = []
    if homeless := {name: count for name, count in over.items() if name not in loaded}:
        parts.append(describe_homeless(homeless, problem.hosts))
        error = NoServer
    if more := {name: count for name, count in over.items() if name in loaded}:
        parts.append(describe_over(more, problem, plan.robots))
        if not proven:
            parts.append(f'{time_limit:g} s were not enough to prove that no plan serves more: '
                         'raise manager.time_limit')
    raise error('; '.join(parts), plan, fitting)
