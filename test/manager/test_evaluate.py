# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from robion_ros.manager.errors import InfeasiblePlan
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.traffic import TrafficPlan

# a: 3 of 6 on s, 1 of 6 on t; b: 2 of 4 on s; c: 1 of 3 on t. s is full, t half full.
# Pairs: 3 x 2 on s and 1 x 1 on t.
PLAN = TrafficPlan({('s', 'a'): 3, ('s', 'b'): 2, ('t', 'a'): 1, ('t', 'c'): 1},
                   objective=7, optimal=True, bound=7, solve_s=0.1)


@pytest.fixture
def problem(make_problem):
    return make_problem({'a': 4, 'b': 2, 'c': 1, 'd': 0},
                        {'s': {'a': 6, 'b': 4, 'd': 0}, 't': {'a': 6, 'c': 3}})


def test_objective_is_recomputed(problem) -> None:
    assert evaluate(problem, PLAN) == 7


@pytest.mark.parametrize(('robots', 'message'), [
    ({('s', 'a'): 2}, '3 robots of a are planned, there are 4'),
    ({('s', 'a'): 4}, '5 robots of a are planned, there are 4'),
    ({('s', 'd'): 1}, '1 robots of d on s: the capacity is 0'),
    ({('s', 'e'): 1}, '1 robots of e on s: the server has not loaded the model'),
    ({('t', 'b'): 1}, '1 robots of b on t: the server has not loaded the model'),
    ({('u', 'a'): 1}, '1 robots of a on u: there is no such server'),
    ({('t', 'c'): 0}, '0 robots of c on t: only positive numbers'),
    ({('s', 'a'): 5, ('t', 'a'): -1}, '-1 robots of a on t: only positive numbers'),
], ids=['robot lost', 'robot doubled', 'no capacity', 'unknown model', 'not loaded',
        'unknown server', 'zero', 'negative'])
def test_broken_plan_is_caught(problem, robots, message) -> None:
    with pytest.raises(InfeasiblePlan, match=message):
        evaluate(problem, replace(PLAN, robots={**PLAN.robots, **robots}))


def test_load_above_one_is_caught_exactly(make_problem) -> None:
    """1/3 + 2/3 fills a server; one part in 10^15 more is over."""
    problem = make_problem({'a': 1, 'b': 2}, {'s': {'a': 3, 'b': 3}})
    plan = TrafficPlan({('s', 'a'): 1, ('s', 'b'): 2}, 2, True, 2, 0.0)
    assert evaluate(problem, plan) == 2
    robots = {'a': 1, 'b': 2, 'c': 1}
    problem = make_problem(robots, {'s': {'a': 3, 'b': 3, 'c': 10**15}})
    plan = TrafficPlan({('s', model): count for model, count in robots.items()}, 5, True, 5, 0.0)
    with pytest.raises(InfeasiblePlan, match=f'the load of s is {10**15 + 1}/{10**15}, must be'):
        evaluate(problem, plan)


@pytest.mark.parametrize(('changes', 'message'), [
    ({'objective': 6}, 'the objective is 7, the plan says 6'),
    ({'bound': 6}, 'the objective is 7, the bound 6 is not right'),
    ({'bound': 8, 'optimal': False}, 'the objective is 7, the bound 8 is not right'),
], ids=['objective', 'proven with a gap', 'bound above'])
def test_wrong_figures_are_caught(problem, changes, message) -> None:
    with pytest.raises(InfeasiblePlan, match=message):
        evaluate(problem, replace(PLAN, **changes))


def test_gap_of_a_plan_that_is_not_proven_is_right(problem) -> None:
    assert evaluate(problem, replace(PLAN, bound=3, optimal=False)) == 7
