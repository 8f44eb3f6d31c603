# SPDX-License-Identifier: Apache-2.0
"""
The best plan of one group: packed, searched, proven, and of equal ones the gentlest.

Knows neither other groups nor the names of robots.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic

from ortools.sat.python.cp_model import LinearExpr

from robion_ros.manager.group import count_pairs, Group, Rows
from robion_ros.manager.packing import fill, pack, separate, spread
from robion_ros.manager.program import build, in_order, minimise, order
from robion_ros.manager.search import even_out, improve, settle, Watch
from robion_ros.manager.symmetry import relabel

PARTS = 0.4, 0.8
"""When, of its time, the search near what runs must be done, and that of any plan."""
NEAR = (0.25,)
"""Temperatures at which rounds of the search near what runs begin, in robots of a server."""
FAR = (1.0, 4.0, 0.25)
"""Those of the search of any plan."""
WORTH = 1
"""Moved robots that a pair is worth, where no plan is proven best."""
EVEN_EFFORT = 0.2
"""Most time to even out loads, s of the solver's own clock, the same on every machine."""


@dataclass(frozen=True)
class Solved:
    """The plan of a group."""

    rows: Rows
    proven: bool
    """Whether no plan has fewer pairs."""
    bound: int
    """No plan has fewer pairs than this."""


def starts(group: Group) -> list[Rows]:
    """Return plans to begin with: first the one like what runs, then others."""
    running = [list(row) for row in group.running]
    return [pack(group, running), *(make(group) for make in (pack, separate, fill, spread))]


def serve_most(group: Group, deadline: float) -> tuple[list[Rows], bool]:
    """
    Serve the most robots, those of higher priorities first; return whether that is proven.

    Of equal plans, one leaves out the fewest robots that run now. Return plans that serve the
    same robots, the first, if it can be, near to what runs.
    """
    plans = starts(group)
    if complete := [rows for rows in plans if group.served(rows) == group.robots]:
        return complete, True
    rows, proven = _serve_most(group, plans, deadline)
    rest = replace(group, robots=group.served(rows))
    return [*(near for near in starts(rest) if rest.served(near) == rest.robots),
            rows], proven


def _serve_most(group: Group, plans: Sequence[Rows], deadline: float) -> tuple[Rows, bool]:
    """Serve more robots than plans until no plan serves more."""
    levels = sorted(set(group.priorities), reverse=True)

    def served(rows: Rows) -> list[int]:
        return [sum(count for count, priority in zip(group.served(rows), group.priorities,
                                                     strict=True) if priority == level)
                for level in levels]
    rows, proven = in_order(group, max(plans, key=served)), True
    program = build(group)
    order(program, group)
    for index, level in enumerate(levels):
        value = LinearExpr.sum([count for count, priority in zip(
            program.served, group.priorities, strict=True) if priority == level])
        found = minimise(program, -value, rows, deadline)
        rows, proven = found.rows or rows, proven and found.proven
        program.model.add(value >= served(rows)[index])
    if group.runs:
        rows = minimise(program, -LinearExpr.sum(list(program.kept)), rows, deadline).rows or rows
    return rows, proven


def search(group: Group, plans: Sequence[Rows], deadline: float,
           watch: Watch) -> tuple[Rows, Rows]:
    """
    Return good plans: one near to what runs, and the best found.

    plans are those known, which serve all; the first is near to what runs.
    """
    now = monotonic()
    first = min(plans, key=count_pairs)
    watch(first)
    if not group.runs:
        far = improve(group, first, FAR, deadline, watch)
        return far, far
    one, two = (now + part * (deadline - now) for part in PARTS)
    near = relabel(group, improve(group, plans[0], NEAR, one, lambda rows: None, WORTH))
    far = improve(group, min(near, first, key=count_pairs), FAR, two, watch)
    return near, settle(group, relabel(group, far), deadline)


def finish(group: Group, near: Rows, far: Rows, deadline: float, watch: Watch) -> Solved:
    """Prove the better of two plans or find a better one, and choose among equals."""
    best = min(near, far, key=group.cost)
    solved = _prove(group, best, deadline)
    if solved.proven:
        rows = min(best, relabel(group, solved.rows), key=group.cost)
        rows = _break_ties(group, rows, deadline)
    else:  # Of plans that are not proven best, one must be worth its moves.
        rows = min(near, best, relabel(group, solved.rows),
                   key=lambda rows: group.cost(rows, WORTH))
    rows = even_out(group, rows)
    watch(rows)
    return Solved(rows, solved.proven, solved.bound)


def _prove(group: Group, rows: Rows, deadline: float) -> Solved:
    """Look for a plan with fewer pairs until there is none."""
    pairs = count_pairs(rows)
    if not pairs or monotonic() >= deadline:
        return Solved(rows, not pairs, 0)
    program = build(group)
    order(program, group)
    for count, most in zip(program.served, group.robots, strict=True):
        program.model.add(count == most)
    program.model.add(program.pairs <= 2 * pairs)
    found = minimise(program, program.pairs, in_order(group, rows), deadline)
    if found.rows is None or count_pairs(found.rows) == pairs:
        return Solved(rows, found.proven, max(0, -(-found.bound // 2)))
    return Solved(found.rows, found.proven, max(0, -(-found.bound // 2)))


def _break_ties(group: Group, rows: Rows, deadline: float) -> Rows:
    """Of the plans with as few pairs, return the one that moves fewest, then the most even."""
    if monotonic() >= deadline:
        return rows
    program = build(group)
    for count, most in zip(program.served, group.robots, strict=True):
        program.model.add(count == most)
    program.model.add(program.pairs <= 2 * count_pairs(rows))
    moved = group.moved(rows)
    if moved:
        found = minimise(program, -program.stay, rows, deadline)
        rows = found.rows or rows
    stay = group.runs - group.moved(rows)
    program.model.add(program.stay >= stay)
    return minimise(program, program.peak, rows, deadline, EVEN_EFFORT).rows or rows
