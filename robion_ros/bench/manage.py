# SPDX-License-Identifier: Apache-2.0
"""
How good the manager's plans are, how soon, and how much of them is proven, on made-up factories.

Knows neither terminals nor files.
"""

from collections.abc import Callable, Mapping
from importlib.resources import files
from itertools import count
import json
import os
from random import Random
import time
from typing import Any

from robion_ros.bench.factories import change, make_factory
from robion_ros.bench.settings import Size
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.group import count_pairs, Group, Rows, split
from robion_ros.manager.packing import fill, pack, separate, spread
from robion_ros.manager.search import anneal
from robion_ros.manager.traffic import solve, TrafficPlan, TrafficProblem

SIZES = Size(8, 4, 64), Size(16, 16, 400), Size(32, 64, 2000)
LIMITS = {SIZES[0]: 10.0, SIZES[1]: 10.0, SIZES[2]: 20.0}
"""Time to plan a factory, s."""
SLOW = 30.0
"""The same for 16 models on 16 servers that differ."""
MARKS = 1.0, 2.0, 10.0
"""When the objective is looked at, s."""
HEATS = 0.5, 1.0, 2.0, 4.0
"""Temperatures at which long searches begin, in robots of a server."""
LONG = 1_000_000
"""Steps of the first of them."""
BASELINES: Mapping[str, Callable[[Group], Rows]] = {
    'one by one': fill, 'even split': spread, 'one model each': separate}


def default_limit(size: Size, kind: str) -> float:
    """Return the time to plan a factory, s."""
    return SLOW if (size, kind) == (SIZES[1], 'heterogeneous') else LIMITS.get(size, LIMITS[
        SIZES[2]])


def load_best() -> dict[str, Any]:
    """Return the best objectives known, by size, kind and seed, and how they were found."""
    text = files('robion_ros.bench').joinpath('best_known.json').read_text(encoding='utf-8')
    return dict(json.loads(text))


def key_of(size: Size, kind: str, seed: int) -> str:
    """Return the name of a factory."""
    return f'{size} {kind} {seed}'


def measure(size: Size, kind: str, seed: int, limit: float, changes: int) -> dict[str, Any]:
    """
    Plan a factory, and again after each of so many small changes; return all figures.

    changes are planned within 1 s each.
    """
    problem = make_factory(size, kind, seed)
    before = os.getloadavg()[0]
    started = time.monotonic()
    over_time: list[tuple[float, int]] = []

    def watch(objective: int) -> None:
        if not over_time or objective < over_time[-1][1]:
            over_time.append((round(time.monotonic() - started, 4), objective))
    plan = solve(problem, limit, watch=watch)
    evaluate(problem, plan)
    return {
        'size': str(size), 'kind': kind, 'seed': seed, 'limit_s': limit,
        **{name: compare(problem, make) for name, make in BASELINES.items()},
        'first_s': over_time[0][0], 'first': over_time[0][1], 'over_time': over_time,
        'objective': plan.objective, 'bound': plan.bound, 'optimal': plan.optimal,
        'solve_s': round(plan.solve_s, 3),
        'moved': follow(problem, plan, changes, Random(seed)),
        'load_average': [before, os.getloadavg()[0]]}


def find_best(size: Size, kind: str, seed: int, seconds: float) -> int:
    """
    Return the least objective found in a long search; a proof ends it early.

    After the manager's own search, annealing begins anew from an even split again and again, each
    time with another seed, in more and more steps.
    """
    problem = make_factory(size, kind, seed)
    plan = solve(problem, LIMITS.get(size, SLOW))
    if plan.optimal:
        return plan.objective
    total = 0
    groups = list(split(problem.robots, problem.places, {}, {}))
    for group in groups:
        best = count_pairs(group.rows(plan.robots))
        end = time.monotonic() + seconds / len(groups)
        heat = sum(group.robots) / len(group.servers)
        for number in count():
            if time.monotonic() >= end or not best:
                break
            start = pack(group) if number % 2 else spread(group)
            found = anneal(group, start if group.served(start) == group.robots
                           else group.rows(plan.robots), (heat * HEATS[number % len(HEATS)], 0.5),
                           LONG << number // len(HEATS), Random(1000 + number), end)
            best = min(best, count_pairs(found))
        total += best
    return total


def compare(problem: TrafficProblem, make: Callable[[Group], Rows]) -> dict[str, int]:
    """Return what a simple way of planning comes to."""
    groups = list(split(problem.robots, problem.places, {}, {}))
    plans = [make(group) for group in groups]
    return {'objective': sum(map(count_pairs, plans)),
            'served': sum(sum(group.served(rows)) for group, rows
                          in zip(groups, plans, strict=True))}


def follow(problem: TrafficProblem, plan: TrafficPlan, changes: int,
           random: Random) -> list[int]:
    """Return how many robots that go on running are moved by each of some small changes."""
    moved = []
    for _ in range(changes):
        problem = change(problem, plan, random)
        plan = solve(problem, 1.0)
        evaluate(problem, plan)
        moved.append(sum(max(0, count - plan.robots.get(place, 0))
                         for place, count in problem.running.items()))
    return moved


def at(row: Mapping[str, Any], seconds: float) -> int | None:
    """Return the objective that a row had reached by then; None before the first plan."""
    reached = [objective for when, objective in row['over_time'] if when <= seconds]
    return reached[-1] if reached else None
