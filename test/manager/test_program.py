# SPDX-License-Identifier: Apache-2.0
"""How the program searches: exact loads, time limit, where it begins."""

from dataclasses import replace
import math

import pytest

from robion_ros.manager import program
from robion_ros.manager.errors import OverCapacity, TimeLimit
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.program import build, in_order, minimise, order
from robion_ros.manager.traffic import solve, TrafficProblem

LIMIT = 30.0
"""Far more than any of these needs, s."""

FULL = [
    ({'a': 1, 'b': 2}, {'a': 3, 'b': 3}),  # 1/3 + 2/3
    ({'a': 3, 'b': 4}, {'a': 7, 'b': 7}),  # 3/7 + 4/7
    ({'a': 1, 'b': 2, 'c': 8}, {'a': 3, 'b': 7, 'c': 21}),  # 7/21 + 6/21 + 8/21
    (dict.fromkeys('abcdefghij', 1), dict.fromkeys('abcdefghij', 10)),  # 10/10, less in floats
    # Five fifths whose common denominator, about 1.6e22, does not fit 64 bits.
    (dict(zip('abcde', (19937, 19949, 19961, 19973, 19993), strict=True)),
     dict(zip('abcde', (99685, 99745, 99805, 99865, 99965), strict=True))),
]
IDS = ['thirds', 'sevenths', 'both', 'tenths', 'large primes']

BARELY_OVER = [
    ({'a': 49995, 'b': 49995}, {'a': 99989, 'b': 99991}),  # by 1 / 9998000099
    # By one part in their product, about 9.9e21.
    (dict(zip('abcde', (3386, 936, 2460, 30647, 1409), strict=True)),
     dict(zip('abcde', (9967, 9973, 10007, 99991, 99929), strict=True))),
]


@pytest.fixture(params=[10, program.DIGIT], ids=['small digits', 'large digits'])
def digits(request, monkeypatch) -> None:
    monkeypatch.setattr(program, 'DIGIT', request.param)


@pytest.mark.usefixtures('digits')
@pytest.mark.parametrize(('robots', 'capacities'), FULL, ids=IDS)
def test_server_at_exactly_one_is_full(make_problem, robots, capacities) -> None:
    problem = make_problem(robots, {'s': capacities})
    plan = solve(problem, LIMIT)
    evaluate(problem, plan)
    assert plan.robots == {('s', model): count for model, count in robots.items()}


@pytest.mark.usefixtures('digits')
@pytest.mark.parametrize(('robots', 'capacities'), [
    *((robots | {model: robots[model] + 1}, capacities)
      for robots, capacities in FULL for model in [max(capacities, key=capacities.__getitem__)]),
    *BARELY_OVER], ids=[*IDS, 'two primes', 'five primes'])
def test_server_above_one_is_over_by_a_robot(make_problem, robots, capacities) -> None:
    with pytest.raises(OverCapacity) as caught:
        solve(make_problem(robots, {'s': capacities}), LIMIT)
    evaluate(caught.value.fitting, caught.value.best)
    assert sum(caught.value.best.robots.values()) == sum(robots.values()) - 1


def factory(make_problem) -> TrafficProblem:
    """Return 8 models on 4 servers with 64 robots, 0.7 full."""
    robots = dict(zip('abcdefgh', (11, 6, 5, 9, 6, 6, 11, 10), strict=True))
    capacities = dict(zip('abcdefgh', (17, 14, 25, 14, 42, 42, 42, 33), strict=True))
    return make_problem(robots, {f'gpu_{index}': capacities for index in range(4)})


def test_large_factory_has_a_plan_within_the_limit(make_problem) -> None:
    problem = factory(make_problem)
    plan = solve(problem, 1.0)
    assert plan.bound <= evaluate(problem, plan)


def test_no_time_leaves_a_packed_plan(make_problem) -> None:
    problem = factory(make_problem)
    plan = solve(problem, 0.0)
    assert evaluate(problem, plan) == plan.objective
    assert (plan.optimal, plan.bound) == (False, 0)


def test_search_begins_at_what_runs(make_problem) -> None:
    problem = factory(make_problem)
    best = solve(problem, LIMIT)
    assert best.optimal
    bare, near = (solve(replace(problem, running=running), 0.0) for running in ({}, best.robots))
    assert near.objective == best.objective < bare.objective


def test_no_time_to_prove_that_robots_do_not_fit(make_problem) -> None:
    problem = factory(make_problem)
    crowded = replace(problem, robots={name: 5 * count for name, count in problem.robots.items()})
    with pytest.raises(TimeLimit, match=r'0 s were not enough to prove.*manager.time_limit'
                       ) as caught:
        solve(crowded, 0.0)
    assert evaluate(caught.value.fitting, caught.value.best) == caught.value.best.objective


def test_servers_that_are_alike_are_ordered_without_losing_a_plan(make_group) -> None:
    group = make_group((3, 4), [(9, 9), (5, 5), (9, 9)])
    rows = [[0, 1], [2, 0], [1, 3]]
    ordered = in_order(group, rows)
    assert ordered == [[1, 3], [2, 0], [0, 1]]
    built = build(group)
    order(built, group)
    for row, counts in zip(built.robots, ordered, strict=True):
        for var, count in zip(row, counts, strict=True):
            built.model.add(var == count)
    assert minimise(built, built.pairs, ordered, math.inf).bound == 2 * 3
