# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from random import Random
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.manager import program
from robion_ros.manager.errors import NoServer, OverCapacity, Unserved
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.traffic import solve, TrafficProblem

LIMIT = 30.0
"""Far more than any of these needs, s."""


def on(servers: str, capacities: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return the same capacities for each server."""
    return {server: capacities for server in servers}


@pytest.mark.parametrize(('robots', 'capacities', 'objective', 'plan'), [
    # One model a server: no pair shares one. Which server a gets is left open.
    ({'a': 4, 'b': 4}, {'s': {'a': 8, 'b': 8}, 't': {'a': 8, 'b': 8}}, 0, None),
    # All fit together, but 1 x 2 is the cheapest pair to share a server (1 x 3 = 3, 2 x 3 = 6).
    ({'a': 1, 'b': 2, 'c': 3}, on('st', {'a': 6, 'b': 6, 'c': 6}), 2, None),
    # Loads 6/4 + 2/4 fill both servers. a fills one (4), its other 2 meet b's 2: 4. Any other
    # split has a and b on both: 3 x 1 + 3 x 1 = 6.
    ({'a': 6, 'b': 2}, on('st', {'a': 4, 'b': 4}), 4, None),
    # b has to be on s. a would have t alone, which takes 3 of its 5: 2 x 3 pairs on s.
    ({'a': 5, 'b': 3}, {'s': {'a': 9, 'b': 9}, 't': {'a': 3}}, 6,
     {('s', 'a'): 2, ('s', 'b'): 3, ('t', 'a'): 3}),
    # Nowhere to go apart: 2 x 3 + 2 x 4 + 3 x 4.
    ({'a': 2, 'b': 3, 'c': 4}, {'s': {'a': 9, 'b': 9, 'c': 9}}, 26,
     {('s', 'a'): 2, ('s', 'b'): 3, ('s', 'c'): 4}),
    # The servers differ: t is too slow for a, s for b.
    ({'a': 6, 'b': 6}, {'s': {'a': 6, 'b': 2}, 't': {'a': 2, 'b': 6}}, 0,
     {('s', 'a'): 6, ('t', 'b'): 6}),
    # Any split has no pairs; the most even has loads of 3/6 and 3/6 ...
    ({'a': 6}, on('st', {'a': 6}), 0, {('s', 'a'): 3, ('t', 'a'): 3}),
    # ... and 4/8 and 2/4.
    ({'a': 6}, {'s': {'a': 8}, 't': {'a': 4}}, 0, {('s', 'a'): 4, ('t', 'a'): 2}),
    ({'a': 0}, {'s': {'a': 8}}, 0, {}),
    ({'a': 2, 'b': 0}, {'s': {'a': 8, 'b': 8}}, 0, {('s', 'a'): 2}),
    ({'a': 0}, {}, 0, {}),
    ({}, {}, 0, {}),
], ids=['apart', 'cheapest pair', 'fill one', 'hosting', 'one server', 'capacities', 'even',
        'even uneven', 'no robots', 'a model without robots', 'no servers', 'nothing'])
def test_optimum_worked_out_by_hand(make_problem, robots, capacities, objective, plan) -> None:
    problem = make_problem(robots, capacities)
    solved = solve(problem, LIMIT)
    assert evaluate(problem, solved) == objective
    assert solved.optimal and solved.bound == objective
    if plan is not None:
        assert solved.robots == plan


@pytest.mark.parametrize('servers', range(1, 13))
def test_equal_servers_are_all_used(make_problem, servers: int) -> None:
    problem = make_problem({'a': servers, 'b': servers},
                           {f's{index}': {'a': 12, 'b': 12} for index in range(servers)})
    solved = solve(problem, LIMIT)
    assert evaluate(problem, solved) == (0 if servers > 1 else 1)
    assert solved.optimal
    loads = [sum(count for (server, _), count in solved.robots.items() if server == name)
             for name in problem.hosts]
    # Apart, a and b share the servers as evenly as whole servers can.
    assert max(loads) <= (servers // max(1, servers // 2)) + 1


@pytest.mark.parametrize(('robots', 'capacities', 'message'), [
    ({'a': 2, 'b': 1}, {'s': {'b': 4}, 't': {'b': 4}},
     r'loaded the model of 2 robots of a \(servers: s, t\); add it'),
    ({'a': 2, 'b': 1}, {}, r'the model of 2 robots of a, 1 robot of b \(servers: none\)'),
], ids=['a model', 'all'])
def test_no_server(make_problem, robots, capacities, message) -> None:
    with pytest.raises(NoServer, match=message):
        solve(make_problem(robots, capacities), LIMIT)


@pytest.mark.parametrize(('robots', 'capacities', 'message', 'served'), [
    ({'pick': 13, 'place': 2}, {'s': {'pick': 5}, 't': {'pick': 5}, 'u': {'place': 4}},
     r'over by 3 robots of pick \(13 in all; servers that have loaded it: 2, with room for 10',
     12),
    # 6/4 + 3/4 = 2.25 of 2 servers: one of the nine must go, whichever.
    ({'a': 6, 'b': 3}, on('st', {'a': 4, 'b': 4}), 'over by 1 robot of ', 8),
    # Half of the two servers is idle, but only s takes a.
    ({'a': 8, 'b': 0}, {'s': {'a': 4, 'b': 9}, 't': {'b': 9}}, 'over by 4 robots of a', 4),
    ({'a': 2, 'b': 1}, {'s': {'a': 0, 'b': 3}}, 'over by 2 robots of a .* room for 0', 1),
    ({'a': 2}, {'s': {'a': -1}}, 'over by 2 robots of a .* room for 0', 0),
], ids=['by model', 'by load', 'by hosting', 'capacity 0', 'capacity below 0'])
def test_over_capacity(make_problem, robots, capacities, message, served) -> None:
    with pytest.raises(OverCapacity, match=message) as caught:
        solve(make_problem(robots, capacities), LIMIT)
    best, fitting = caught.value.best, caught.value.fitting
    assert evaluate(fitting, best) == best.objective
    assert sum(fitting.robots.values()) == served


def plans(problem: TrafficProblem) -> Iterator[tuple[tuple[int, ...], int, int, Fraction]]:
    """Yield served robots, pairs, moves and highest load of each plan there is, by brute force."""
    servers, models = list(problem.hosts), list(problem.robots)
    rows = [[row for row in product(range(problem.robots[model] + 1), repeat=len(servers))
             if sum(row) <= problem.robots[model] and not any(
                 count and model not in problem.hosts[server]
                 for server, count in zip(servers, row, strict=True))] for model in models]
    for matrix in product(*rows):
        loads = [sum((Fraction(row[place], problem.capacities[server, model])
                      for model, row in zip(models, matrix, strict=True) if row[place]),
                     Fraction()) for place, server in enumerate(servers)]
        if max(loads) <= 1:
            pairs = sum(one[place] * other[place] for one, other in combinations(matrix, 2)
                        for place in range(len(servers)))
            moved = sum(max(0, count - dict(zip(models, matrix, strict=True))[model][
                servers.index(server)]) for (server, model), count in problem.running.items()
                if server in servers and model in models)
            yield tuple(map(sum, matrix)), pairs, moved, max(loads)


@st.composite
def problems(draw, make_problem):
    """Draw a problem so small that every plan can be tried."""
    models, servers = draw(st.sampled_from([('abc', 'st'), ('ab', 'stu'), ('abc', 's')]))
    robots = {model: draw(st.integers(0, 4)) for model in models}
    capacities = {server: {model: draw(st.integers(1, 6)) for model in models
                           if draw(st.integers(0, 4))} for server in servers}
    running = {(server, model): count for model in models
               for server, count in zip(servers, draw(st.sampled_from(
                   [row for row in product(range(robots[model] + 1), repeat=len(servers))
                    if sum(row) <= robots[model]])), strict=True) if count}
    priorities = {model: draw(st.integers(-1, 1)) for model in models}
    return make_problem(robots, capacities, running, priorities)


@settings(deadline=None)
@given(data=st.data())
def test_solver_agrees_with_brute_force(make_problem, data) -> None:
    problem = data.draw(problems(make_problem))
    every = list(plans(problem))
    models = list(problem.robots)

    def priority(served: tuple[int, ...]) -> list[int]:
        return [sum(count for model, count in zip(models, served, strict=True)
                    if problem.priorities[model] == level) for level in (1, 0, -1)]
    most = max(priority(served) for served, *_ in every)
    digit = data.draw(st.sampled_from([2, 10, program.DIGIT]))
    fitting = problem
    with patch.object(program, 'DIGIT', digit):
        try:
            plan = solve(problem, LIMIT)
        except Unserved as error:
            fitting, plan = error.fitting, error.best
            homeless = any(count and not any(model in row for row in problem.hosts.values())
                           for model, count in problem.robots.items())
            assert isinstance(error, NoServer if homeless else OverCapacity)
    served = tuple(fitting.robots[model] for model in models)
    assert priority(served) == most
    assert (fitting is problem) == (served == tuple(problem.robots.values()))
    cost, moved, peak = min(figures for robots, *figures in every if robots == served)
    assert evaluate(fitting, plan) == cost
    assert plan.optimal
    assert sum(max(0, count - plan.robots.get(place, 0))
               for place, count in problem.running.items()) == moved
    loads = {server: sum((Fraction(count, problem.capacities[where, model])
                          for (where, model), count in plan.robots.items() if where == server),
                         Fraction()) for server in problem.hosts}
    assert max(loads.values()) <= peak + Fraction(1, 1000)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), models=st.integers(2, 9), servers=st.integers(2, 7),
       limit=st.sampled_from([0.0, 0.05, 0.3]))
def test_plan_of_any_factory_is_one(make_problem, seed, models, servers, limit) -> None:
    random = Random(seed)
    names = [f'm{index}' for index in range(models)]
    robots = {name: random.randint(0, 30) for name in names}
    capacities = {f's{index}': {name: random.randint(1, 60)
                                for name in random.sample(names, random.randint(1, models))}
                  for index in range(servers)}
    problem = make_problem(robots, capacities)
    told = []
    try:
        plan, fitting = solve(problem, limit, watch=told.append), problem
    except Unserved as error:
        plan, fitting = error.best, error.fitting
        assert all(count <= robots[name] for name, count in fitting.robots.items())
    assert plan.bound <= evaluate(fitting, plan)
    assert not told or told[-1] == plan.objective


@pytest.mark.parametrize(('running', 'plan'), [
    ({('s', 'a'): 4, ('t', 'b'): 4}, {('s', 'a'): 4, ('t', 'b'): 4}),
    ({('s', 'b'): 4, ('t', 'a'): 4}, {('s', 'b'): 4, ('t', 'a'): 4}),
    # Of the two ways to be apart, the one that lets more stay.
    ({('s', 'a'): 1, ('t', 'a'): 3}, {('s', 'b'): 4, ('t', 'a'): 4}),
], ids=['as it is', 'the other way', 'most stay'])
def test_robots_stay_where_they_can(make_problem, running, plan) -> None:
    problem = make_problem({'a': 4, 'b': 4}, on('st', {'a': 8, 'b': 8}), running)
    assert solve(problem, LIMIT).robots == plan


def test_robots_do_not_move_for_an_even_load(make_problem) -> None:
    problem = make_problem({'a': 6}, on('st', {'a': 6}), {('s', 'a'): 5})
    assert solve(problem, LIMIT).robots == {('s', 'a'): 5, ('t', 'a'): 1}


def test_robots_that_run_are_left_out_last(make_problem) -> None:
    problem = make_problem({'a': 4, 'b': 4}, {'s': {'a': 6, 'b': 6}}, {('s', 'b'): 4})
    with pytest.raises(OverCapacity, match='over by 2 robots of a') as caught:
        solve(problem, LIMIT)
    assert caught.value.best.robots == {('s', 'a'): 2, ('s', 'b'): 4}


def test_higher_priorities_are_served_first_even_if_that_serves_fewer(make_problem) -> None:
    robots, capacities = {'a': 2, 'b': 8}, {'s': {'a': 2, 'b': 8}}
    with pytest.raises(OverCapacity, match='over by 2 robots of a'):
        solve(make_problem(robots, capacities), LIMIT)
    with pytest.raises(OverCapacity, match='over by 8 robots of b') as caught:
        solve(make_problem(robots, capacities, priorities={'a': 1}), LIMIT)
    assert caught.value.best.robots == {('s', 'a'): 2}


def test_same_problem_in_another_order_gives_the_same_plan(make_problem) -> None:
    # There are many optima: s and t are alike, and so are a and b.
    robots = {'a': 3, 'b': 3, 'c': 5}
    row = {'a': 6, 'b': 6, 'c': 8}
    plan = solve(make_problem(robots, {'s': row, 't': row}), LIMIT)
    backward = {model: row[model] for model in 'cba'}
    again = solve(make_problem({model: robots[model] for model in 'cba'},
                               {'t': backward, 's': backward}), LIMIT)
    assert again == plan
    assert list(again.robots) == list(plan.robots)


@pytest.mark.parametrize(('robots', 'hosts', 'message'), [
    ({'a': -1}, {}, 'robots of a are -1, must be 0 or more'),
    ({'a': 1}, {'s': ('a',)}, r's hosts a, but capacities has no \(s, a\)'),
], ids=['negative', 'no capacity'])
def test_problem_that_is_none(robots, hosts, message) -> None:
    with pytest.raises(ValueError, match=message):
        TrafficProblem(robots, hosts, {})


