# SPDX-License-Identifier: Apache-2.0
"""Exchanges change what they say they change, and a search never makes a plan worse."""

from fractions import Fraction
from math import inf
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from robion_ros.manager.group import count_pairs
from robion_ros.manager.packing import pack, spread
from robion_ros.manager.search import anneal, even_out, improve, settle, State

CAPACITIES = [(9, 7, 0, 11), (9, 7, 13, 11), (5, 7, 13, 0)]
"""By server and model; 0: not there."""
RUNNING = [(2, 0, 0, 1), (0, 3, 1, 0), (1, 0, 2, 0)]


def is_plan(group, rows) -> bool:
    loads = [sum(Fraction(count, limit) for count, limit in zip(row, limits, strict=True) if limit)
             for row, limits in zip(rows, group.capacities, strict=True)]
    return (group.served(rows) == group.robots and max(loads) <= 1 and all(
        count >= 0 and (limit or not count) for row, limits
        in zip(rows, group.capacities, strict=True)
        for count, limit in zip(row, limits, strict=True)))


@settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_exchanges_are_what_they_say(make_group, seed) -> None:
    group = make_group((5, 6, 3, 2), CAPACITIES, RUNNING)
    state, random = State(group, spread(group)), Random(seed)
    for _ in range(40):
        exchange = state.propose(random.random)
        if exchange is None:
            continue
        pairs = count_pairs(state.rows) + state.pairs(exchange)
        moved = group.moved(state.rows) + state.moved(exchange)
        state.apply(exchange)
        assert is_plan(group, state.rows)
        assert (count_pairs(state.rows), group.moved(state.rows)) == (pairs, moved)
        assert state.totals == [sum(row) for row in state.rows]
        assert sorted(state.cells) == [(server, model) for server, row in enumerate(state.rows)
                                       for model, count in enumerate(row) if count]
        assert state.free == [room - sum(weight * count for weight, count
                                         in zip(weights, row, strict=True))
                              for room, weights, row
                              in zip(group.room, group.weights, state.rows, strict=True)]


def test_every_plan_is_told_and_better_than_the_one_before(make_group) -> None:
    group = make_group((5, 6, 3, 2), CAPACITIES)
    told = [spread(group)]
    best = improve(group, told[0], (1.0,), inf, told.append)
    assert is_plan(group, best) and best == told[-1]
    costs = [count_pairs(rows) for rows in told]
    assert costs == sorted(set(costs), reverse=True)
    assert improve(group, spread(group), (1.0,), inf, told.append) == best


def test_no_time_leaves_the_plan_as_it_is(make_group) -> None:
    group = make_group((5, 6, 3, 2), CAPACITIES)
    rows = spread(group)
    assert improve(group, rows, (1.0,), 0.0, lambda rows: None) == rows
    assert anneal(group, rows, (9.0, 0.5), 1000, Random(0), 0.0) == rows


def test_robots_go_back_to_where_they_run(make_group) -> None:
    group = make_group((8, 6), [(9, 9), (8, 8), (7, 7)], [(0, 6), (7, 0), (1, 0)])
    rows = [[6, 0], [2, 0], [0, 6]]
    settled = settle(group, rows, inf)
    assert is_plan(group, settled) and group.cost(settled) == 0
    # Also where time is over: what costs nothing is done at once.
    group = make_group((8,), [(9,), (8,)], [(7,), (1,)])
    assert settle(group, [[2], [6]], 0.0) == [[7], [1]]


@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_settled_plan_costs_no_more(make_group, seed) -> None:
    group = make_group((5, 6, 3, 2), CAPACITIES, RUNNING)
    state, random = State(group, spread(group)), Random(seed)
    for _ in range(20):
        if exchange := state.propose(random.random):
            state.apply(exchange)
    settled = settle(group, state.rows, 0.0)
    assert is_plan(group, settled)
    assert group.cost(settled) <= group.cost(state.rows)


def test_loads_are_evened_out_at_no_cost(make_group) -> None:
    group = make_group((12, 3), [(12, 9)] * 3)
    assert sorted(even_out(group, [[12, 0], [0, 0], [0, 3]])) == [[0, 3], [6, 0], [6, 0]]
    # Where robots run, none moves for it.
    group = make_group((12, 3), [(12, 9)] * 3, [(12, 0), (0, 0), (0, 3)])
    assert even_out(group, pack(group, [[12, 0], [0, 0], [0, 3]])) == [[12, 0], [0, 0], [0, 3]]
