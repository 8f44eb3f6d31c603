# SPDX-License-Identifier: Apache-2.0
"""
The integer program of traffic.solve, as CP-SAT takes it.

Knows neither populations that do not fit nor in which order its objectives count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, lcm
import time

from ortools.sat.python import cp_model
from ortools.sat.python.cp_model import IntVar, LinearExpr, LinearExprT

Counts = Mapping[tuple[str, str], int]
"""Robots by (server, model)."""

DIGIT = 10**9
"""Loads are summed in digits of this base, so that no sum leaves 64 bits."""
EVEN = 10**6
"""Resolution of the load where it only breaks ties."""


@dataclass(frozen=True)
class Program:
    """A model in the making, its variables, and what can be asked of it."""

    model: cp_model.CpModel
    r: Mapping[tuple[str, str], IntVar]
    """Robots by (server, model)."""
    served: Mapping[str, LinearExprT]
    """Robots of each model that have a server."""
    pairs: LinearExprT
    """Twice the robots times robots, over servers and pairs of models."""
    peak: IntVar
    """Highest load of a server, rounded, in 1 / EVEN."""


@dataclass(frozen=True)
class Found:
    """What a search came back with."""

    robots: Counts
    """The best plan found, sorted; only those that get a robot."""
    proven: bool
    """Whether there is no better one."""
    bound: float
    """No plan has a smaller value of what was minimised."""


def build(robots: Mapping[str, int], places: Mapping[str, Mapping[str, int]]) -> Program:
    """Write variables and constraints; places are capacities by server and model, all >= 1."""
    model = cp_model.CpModel()
    most = {(server, name): min(robots[name], capacity)
            for server, capacities in places.items() for name, capacity in capacities.items()}
    r = {place: model.new_int_var(0, top, '/'.join(place)) for place, top in most.items()}
    served = {name: LinearExpr.sum([r[place] for place in r if place[1] == name])
              for name in sorted(robots)}
    for name, count in served.items():
        model.add(count <= robots[name])
    peak = model.new_int_var(0, EVEN, 'peak')
    pairs: list[LinearExprT] = []
    for server, capacities in places.items():
        own = [(r[server, name], capacity) for name, capacity in capacities.items()]
        _add_load(model, own)
        model.add(sum(EVEN // capacity * var for var, capacity in own) <= peak)
        if len(own) > 1:
            top = max(capacities.values())
            total = model.new_int_var(0, top, f'{server}/total')
            model.add(total == sum(var for var, _ in own))
            own_pairs = LinearExpr.sum([_square(model, total, top),
                                        *(-_square(model, r[server, name], most[server, name])
                                          for name in capacities)])
            # Implied, but not seen by the solver, which could then not prove that 0 is the least.
            model.add(own_pairs >= 0)
            pairs.append(own_pairs)
    return Program(model, r, served, LinearExpr.sum(pairs), peak)


def _add_load(model: cp_model.CpModel, own: list[tuple[IntVar, int]]) -> None:
    """
    Add sum_i r_i / C_i <= 1, exactly: sum_i r_i (L / C_i) <= L with L the lcm of the C_i.

    Many capacities make an L of more than 64 bits, so the sum is written as one does by hand:
    digit by digit, the least first, each rounding up what it carries to the next.
    """
    variables = [var for var, _ in own]
    room = lcm(*(capacity for _, capacity in own))
    weights = [room // capacity for _, capacity in own]
    carry = model.new_constant(0)
    while room >= DIGIT:
        digit = carry + LinearExpr.weighted_sum(variables, [weight % DIGIT for weight in weights])
        carry = model.new_int_var(0, max(capacity for _, capacity in own), 'carry')
        model.add(digit <= room % DIGIT + DIGIT * carry)
        room, weights = room // DIGIT, [weight // DIGIT for weight in weights]
    model.add(carry + LinearExpr.weighted_sum(variables, weights) <= room)


def _square(model: cp_model.CpModel, var: IntVar, top: int) -> IntVar:
    """Return a variable that is the square of var, which is at most top."""
    square = model.new_int_var(0, top * top, f'{var.name}^2')
    model.add_multiplication_equality(square, [var, var])
    return square


def minimise(program: Program, objective: LinearExprT, start: Counts, deadline: float,
             effort: float = inf) -> Found | None:
    """
    Search from start until proven, until deadline (s of time.monotonic()), or for effort.

    effort is in s of the solver's deterministic clock. None: no plan was found.
    """
    program.model.minimize(objective)
    program.model.clear_hints()  # type: ignore[no-untyped-call, unused-ignore]
    for place, var in program.r.items():
        program.model.add_hint(var, start.get(place, 0))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.linearization_level = 2
    # It would leave the process without the handler of Ctrl-C that it had before.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_time_in_seconds = max(0.0, deadline - time.monotonic())
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(program.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    counts = {place: solver.value(var) for place, var in program.r.items()}
    return Found({place: count for place, count in counts.items() if count},
                 status == cp_model.OPTIMAL, solver.best_objective_bound)
