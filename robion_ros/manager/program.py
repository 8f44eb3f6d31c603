# SPDX-License-Identifier: Apache-2.0
"""
The integer program of traffic.solve for one group, as CP-SAT takes it.

Knows neither populations that do not fit nor in which order its objectives count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
import time

from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar, LinearExpr, LinearExprT

from robion_ros.manager.group import Group, Rows

DIGIT = 10**9
"""Loads are summed in digits of this base, so that no sum leaves 64 bits."""
EVEN = 10**6
"""Resolution of the load where it only breaks ties."""


@dataclass(frozen=True)
class Program:
    """A model in the making, its variables, and what can be asked of it."""

    model: cp_model.CpModel
    robots: Sequence[Sequence[IntVar]]
    """By server and model."""
    served: Sequence[LinearExpr]
    """Robots of each model that have a place."""
    kept: Sequence[IntVar]
    """Robots of each model that run and have a place, wherever."""
    stay: LinearExprT
    """Robots that run and stay where they are."""
    pairs: LinearExprT
    """Twice the pairs of robots of different models that share a server."""
    peak: IntVar
    """Highest load of a server, rounded, in 1 / EVEN."""


@dataclass(frozen=True)
class Found:
    """What a search came back with."""

    rows: Rows | None
    """The best plan found."""
    proven: bool
    """Whether there is no better one."""
    bound: int
    """No plan has a smaller value of what was minimised."""


def build(group: Group) -> Program:
    """Write variables and the constraints of every plan, also of one that leaves robots out."""
    model = cp_model.CpModel()
    robots = [[model.new_int_var(0, min(count, capacity), f'{server}/{name}')
               for count, capacity, name in zip(group.robots, row, group.models, strict=True)]
              for server, row in zip(group.servers, group.capacities, strict=True)]
    served: list[LinearExpr] = [LinearExpr.sum([0, *column])
                                for column in zip(*robots, strict=True)]
    for count, most in zip(served, group.robots, strict=True):
        model.add(count <= most)
    peak = model.new_int_var(0, EVEN, 'peak')
    pairs: list[LinearExprT] = []
    for server, capacities in enumerate(group.capacities):
        own = [(var, capacity) for var, capacity in zip(robots[server], capacities, strict=True)
               if capacity]
        _add_load(model, own, group.room[server])
        model.add(sum(EVEN // capacity * var for var, capacity in own) <= peak)
        if len(own) > 1:
            pairs.append(_add_pairs(model, own))
    kept = [_add_least(model, served[index], sum(row[index] for row in group.running))
            for index in range(len(group.models))]
    stay = LinearExpr.sum([_add_least(model, var, here) for row, places
                           in zip(robots, group.running, strict=True)
                           for var, here in zip(row, places, strict=True) if here])
    return Program(model, robots, served, kept, stay, LinearExpr.sum(pairs), peak)


def order(program: Program, group: Group) -> None:
    """
    Tell servers that are alike apart, which would else be tried in every order.

    Of the model that needs the most of them, each takes at most as many as the one before it.
    """
    for servers in group.alike:
        lead = _lead(group, servers[0])
        for one, next_one in pairwise(servers):
            program.model.add(program.robots[one][lead] >= program.robots[next_one][lead])


def in_order(group: Group, rows: Rows) -> Rows:
    """Return the plan that order leaves of rows."""
    ordered = list(rows)
    for servers in group.alike:
        lead = _lead(group, servers[0])
        for server, row in zip(servers, sorted((rows[server] for server in servers),
                                               key=lambda row: -row[lead]), strict=True):
            ordered[server] = row
    return ordered


def _lead(group: Group, server: int) -> int:
    return max((model for model, capacity in enumerate(group.capacities[server]) if capacity),
               key=lambda model: group.robots[model] / group.capacities[server][model])


def _add_load(model: cp_model.CpModel, own: Sequence[tuple[IntVar, int]], room: int) -> None:
    """
    Add sum_i r_i / C_i <= 1, exactly: sum_i r_i (L / C_i) <= L with L, room, the lcm of the C_i.

    Many capacities make an L of more than 64 bits, so the sum is written as one does by hand:
    digit by digit, the least first, each rounding up what it carries to the next.
    """
    variables = [var for var, _ in own]
    weights = [room // capacity for _, capacity in own]
    carry = model.new_constant(0)
    while room >= DIGIT:
        digit = carry + LinearExpr.weighted_sum(variables, [weight % DIGIT for weight in weights])
        carry = model.new_int_var(0, max(capacity for _, capacity in own), 'carry')
        model.add(digit <= room % DIGIT + DIGIT * carry)
        room, weights = room // DIGIT, [weight // DIGIT for weight in weights]
    model.add(carry + LinearExpr.weighted_sum(variables, weights) <= room)


def _add_pairs(model: cp_model.CpModel, own: Sequence[tuple[IntVar, int]]) -> LinearExprT:
    """Return twice the pairs of robots on a server."""
    top = max(capacity for _, capacity in own)
    total = model.new_int_var(0, top, 'total')
    model.add(total == sum(var for var, _ in own))
    pairs = LinearExpr.sum([_add_square(model, total, top),
                            *(-_add_square(model, var, capacity) for var, capacity in own)])
    # Implied, but not seen by the solver, which could then not prove that 0 is the least.
    model.add(pairs >= 0)
    return pairs


def _add_square(model: cp_model.CpModel, var: IntVar, top: int) -> IntVar:
    """Return a variable that is the square of var, which is at most top."""
    square = model.new_int_var(0, top * top, f'{var.name}^2')
    model.add_multiplication_equality(square, [var, var])
    return square


def _add_least(model: cp_model.CpModel, value: LinearExprT, most: int) -> IntVar:
    """Return a variable that is at most value and at most a number."""
    least = model.new_int_var(0, most, 'least')
    model.add(least <= value)
    return least


def minimise(program: Program, objective: LinearExprT, start: Rows, deadline: float,
             effort: float = inf) -> Found:
    """
    Search from start until proven, until deadline (s of time.monotonic()), or for effort.

    effort is in s of the solver's deterministic clock, which is the same on every machine.
    """
    program.model.minimize(objective)
    program.model.clear_hints()  # type: ignore[no-untyped-call, unused-ignore]
    for row, counts in zip(program.robots, start, strict=True):
        for var, count in zip(row, counts, strict=True):
            program.model.add_hint(var, count)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 2
    # It would leave the process without the handler of Ctrl-C that it had before.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_time_in_seconds = max(0.0, deadline - time.monotonic())
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(program.model)
    assert status not in (cp_model.INFEASIBLE, cp_model.MODEL_INVALID), solver.status_name(status)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = solver.best_objective_bound
    return Found([[solver.value(var) for var in row] for row in program.robots] if found else None,
                 status == cp_model.OPTIMAL, round(bound) if abs(bound) < inf else -2**63)
