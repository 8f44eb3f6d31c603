# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.manager.assignment import (
    assign,
    Move,
    moved,
    natural,
    plan_moves,
    running_counts,
)
from robion_ros.manager.traffic import TrafficPlan

ROBOTS = tuple(f'r{k}' for k in range(1, 6))
SERVERS = ('s', 't', 'u')


def make_plan(counts: dict[tuple[str, str], int]) -> TrafficPlan:
    return TrafficPlan(counts, 0, False, 0, 0.0)


@pytest.mark.parametrize(('names', 'ordered'), [
    (['robot_10', 'robot_2', 'robot_1'], ['robot_1', 'robot_2', 'robot_10']),
    (['cell2/arm_10', 'cell10/arm_1', 'cell2/arm_9'],
     ['cell2/arm_9', 'cell2/arm_10', 'cell10/arm_1']),
    (['b', 'a10b', 'a9', 'a'], ['a', 'a9', 'a10b', 'b']),
    (['a_1', 'a_01', 'a_001'], ['a_001', 'a_01', 'a_1']),
], ids=['numbers', 'two numbers', 'mixed', 'leading zeros'])
def test_natural_order(names, ordered) -> None:
    assert sorted(names, key=natural) == ordered
    assert sorted(reversed(names), key=natural) == ordered


@pytest.mark.parametrize(('counts', 'models', 'running', 'places'), [
    ({('s', 'a'): 2, ('t', 'a'): 1}, {'a_1': 'a', 'a_2': 'a', 'a_10': 'a'}, {},
     {'a_1': 's', 'a_2': 's', 'a_10': 't'}),
    ({('s', 'a'): 1, ('t', 'a'): 2}, {'a_1': 'a', 'a_2': 'a', 'a_10': 'a'},
     {'a_1': ('a', 't'), 'a_2': ('a', 't'), 'a_10': ('a', 't')},
     {'a_1': 't', 'a_2': 't', 'a_10': 's'}),
    ({('s', 'a'): 1, ('t', 'a'): 1}, {'a_1': 'a', 'a_2': 'a'}, {'a_2': ('a', 's')},
     {'a_1': 't', 'a_2': 's'}),
    ({('s', 'b'): 1, ('t', 'b'): 1}, {'r1': 'b', 'r2': 'b'}, {'r2': ('a', 's')},
     {'r1': 't', 'r2': 's'}),
    ({('s', 'b'): 1, ('t', 'b'): 1}, {'r1': 'b', 'r2': 'b'},
     {'r1': ('a', 's'), 'r2': ('b', 's')}, {'r1': 't', 'r2': 's'}),
    ({('t', 'a'): 1}, {'r1': 'a'}, {'r1': ('a', 'gone'), 'left': ('a', 't')}, {'r1': 't'}),
    ({('s', 'a'): 1}, {'r1': 'a', 'r2': 'a'}, {'r2': ('a', 's')}, {'r2': 's'}),
    ({}, {}, {}, {}),
], ids=['new in order', 'last ones move', 'served stays', 'switching stays', 'same model first',
        'server gone', 'no place', 'nothing'])
def test_assign(counts, models, running, places) -> None:
    assert assign(make_plan(counts), models, running) == places


def test_plan_for_more_robots_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match='serves 2 more robots of a than there are'):
        assign(make_plan({('s', 'a'): 3}), {'r1': 'a'}, {})


@st.composite
def situations(draw):
    """Draw models and servers to be of some robots, and what runs now."""
    robots = draw(st.lists(st.sampled_from(ROBOTS), unique=True))
    target = {robot: (draw(st.sampled_from(SERVERS)), draw(st.sampled_from('ab')))
              for robot in robots}
    running = {robot: (draw(st.sampled_from('ab')), draw(st.sampled_from((*SERVERS, 'gone'))))
               for robot in draw(st.lists(st.sampled_from(ROBOTS), unique=True))}
    models = {robot: model for robot, (_, model) in target.items()}
    return models, Counter(target.values()), running


def cost(models, places, running) -> tuple[int, int]:
    """Return how many robots move, and how many of all change server."""
    both = [robot for robot in models if robot in running]
    return (sum(running[robot] != (models[robot], places[robot]) for robot in both),
            sum(running[robot][1] != places[robot] for robot in both))


@settings(deadline=None)
@given(situation=situations())
def test_fewest_robots_move(situation) -> None:
    models, counts, running = situation
    places = assign(make_plan(counts), models, running)
    assert Counter((places[robot], models[robot]) for robot in models) == counts
    every = (dict(zip(models, servers, strict=True))
             for servers in product(SERVERS, repeat=len(models)))
    assert cost(models, places, running) == min(
        cost(models, other, running) for other in every
        if Counter((other[robot], models[robot]) for robot in models) == counts)
    assert moved(plan_moves(models, places, running)) == cost(models, places, running)[0]


def test_robots_that_could_stay_are_counted() -> None:
    running = {'r1': ('a', 's'), 'r2': ('a', 's'), 'r3': ('a', 't'), 'left': ('a', 's')}
    assert running_counts({'r1': 'a', 'r2': 'b', 'r3': 'a', 'new': 'a'}, running) == {
        ('s', 'a'): 1, ('t', 'a'): 1}


def test_moves_name_every_change() -> None:
    running = {'r1': ('a', 's'), 'r2': ('a', 's'), 'r3': ('a', 's'), 'r4': ('a', 's'),
               'r10': ('a', 's')}
    models = {'r1': 'a', 'r2': 'a', 'r3': 'b', 'r10': 'a', 'r11': 'b', 'r12': 'b'}
    places = {'r1': 's', 'r2': 't', 'r3': 's', 'r11': 't'}
    moves = plan_moves(models, places, running)
    assert moves == (
        Move('r2', 's', 't', 'a', 'a'),
        Move('r3', 's', 's', 'a', 'b'),
        Move('r4', 's', None, 'a', None),
        Move('r10', 's', None, 'a', 'a'),
        Move('r11', None, 't', None, 'b'),
        Move('r12', None, None, None, 'b'))
    assert moved(moves) == 2
