# SPDX-License-Identifier: Apache-2.0
import pytest

from robion_ros.manager.shortage import describe_homeless, describe_over


@pytest.mark.parametrize(('robots', 'capacities', 'over', 'plan', 'message'), [
    ({'a': 7, 'b': 2}, {'s': {'a': 4, 'b': 4}, 't': {'b': 4}}, {'a': 3},
     {('s', 'a'): 4, ('t', 'b'): 2},
     'over by 3 robots of a (7 in all; servers that have loaded it: 1, with room for 4 and '
     'nothing else): load of a: at least 1.75; room on s, where alone it can go: 1. Take these '
     'robots away, load their model on another server, or add a server'),
    # b competes for s, so t counts, too.
    ({'a': 4, 'b': 5}, {'s': {'a': 4, 'b': 4}, 't': {'b': 4}}, {'a': 1},
     {('s', 'a'): 3, ('s', 'b'): 1, ('t', 'b'): 4},
     'load of a, b: at least 2.25; room on s, t, where alone it can go: 2. '),
    # 2/3 and 2/2 leave a third of a server free, in which no robot of b has room.
    ({'a': 2, 'b': 3}, {'s': {'a': 3, 'b': 2}, 't': {'a': 3, 'b': 2}}, {'b': 1},
     {('s', 'b'): 2, ('t', 'a'): 2},
     'load of a, b: at least 2.167; room on s, t'),
    ({'a': 3}, {'s': {'a': 2}, 't': {'a': 0}}, {'a': 1}, {('s', 'a'): 2}, 'with room for 2'),
    ({'a': 1, 'b': 3}, {'s': {'a': 2, 'b': 2}, 't': {'a': 2, 'b': 2}}, {'a': 1},
     {('s', 'b'): 2, ('t', 'b'): 1}, 'at least 2; room on s, t, where alone it can go: 2, but not '
     'for whole robots'),
    ({'a': 3}, {'s': {'a': 0}}, {'a': 3}, {}, 'with room for 0 and nothing else). Take'),
], ids=['alone', 'shared', 'more', 'no capacity', 'whole robots', 'nowhere'])
def test_constraint_is_named_with_by_how_much(make_problem, robots, capacities, over, plan,
                                              message) -> None:
    assert message in describe_over(over, make_problem(robots, capacities), plan)


def test_long_lists_are_cut(make_problem) -> None:
    text = describe_homeless({'a': 1}, {f's{index}': ('b',) for index in range(20)})
    assert '(servers: s0, s1, s2, s3, s4, s5, s6, s7, ...)' in text
