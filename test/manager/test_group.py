# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.manager.group import count_pairs, split

ROBOTS = {'a': 4, 'b': 3, 'c': 2, 'd': 1}


@pytest.mark.parametrize(('places', 'groups'), [
    ({'s': {'a': 9}, 't': {'b': 9}}, [('s',), ('t',)]),
    ({'s': {'a': 9, 'b': 9}, 't': {'b': 9, 'c': 9}, 'u': {'d': 9}}, [('s', 't'), ('u',)]),
    # s and u meet through t alone, which comes last.
    ({'s': {'a': 9}, 'u': {'c': 9}, 't': {'a': 9, 'c': 9}}, [('s', 't', 'u')]),
    ({'s': {}, 't': {'a': 9}}, [('t',)]),
    ({}, []),
], ids=['apart', 'shared', 'a chain', 'a server without models', 'nothing'])
def test_groups_share_nothing(places, groups) -> None:
    assert [group.servers for group in split(ROBOTS, places, {}, {})] == groups


def test_group_keeps_what_is_its_own() -> None:
    one, other = split(ROBOTS, {'s': {'a': 9, 'b': 6}, 't': {'c': 5}},
                       {('s', 'b'): 2, ('gone', 'a'): 1}, {'b': 7})
    assert (one.models, one.robots, one.capacities) == (('a', 'b'), (4, 3), ((9, 6),))
    assert (one.running, one.priorities, one.runs) == (((0, 2),), (0, 7), 2)
    assert (other.models, other.robots) == (('c',), (2,))
    assert one.weights == ((2, 3),) and one.room == (18,)
    assert one.counts(one.rows({('s', 'b'): 2})) == {('s', 'b'): 2}


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=3))
def test_pairs_are_counted_one_by_one(rows) -> None:
    pairs = 0
    for row in rows:
        robots = [model for model, count in enumerate(row) for _ in range(count)]
        pairs += sum(one != other for index, one in enumerate(robots)
                     for other in robots[:index])
    assert count_pairs(rows) == pairs


def test_robots_that_cannot_stay_are_counted(make_group) -> None:
    group = make_group((5, 5), [(9, 9), (9, 9)], [(3, 0), (1, 2)])
    assert group.moved([[3, 5], [2, 0]]) == 2
    assert group.moved([[0, 5], [5, 0]]) == 5
