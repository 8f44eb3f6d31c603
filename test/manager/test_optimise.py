# SPDX-License-Identifier: Apache-2.0
"""Where time does not suffice for a proof, a better plan must be worth the robots it moves."""

from math import inf
from time import monotonic

import pytest

from robion_ros.manager.group import count_pairs
from robion_ros.manager.optimise import finish, search, serve_most

ROBOTS = 4, 1, 3, 1, 2
RUNNING = [(4, 1, 0, 0, 0), (0, 0, 3, 1, 0), (0, 0, 0, 0, 2)]
"""Seven pairs."""
FAR = {
    'two pairs fewer for eight robots': [(0, 1, 3, 0, 0), (4, 0, 0, 0, 0), (0, 0, 0, 1, 2)],
    'no pair fewer': [(0, 0, 3, 1, 0), (4, 1, 0, 0, 0), (0, 0, 0, 0, 2)],
}
NEARER = [(4, 0, 0, 0, 0), (0, 0, 3, 1, 0), (0, 1, 0, 0, 2)]
"""Two pairs fewer for one robot."""


def choose(make_group, far):
    group = make_group(ROBOTS, [(9,) * 5] * 3, RUNNING)
    solved = finish(group, [list(row) for row in RUNNING], [list(row) for row in far],
                    monotonic(), lambda rows: None)
    assert not solved.proven
    return group, solved.rows


@pytest.mark.parametrize('far', FAR.values(), ids=FAR)
def test_plan_is_not_worth_more_moves_than_the_pairs_it_saves(make_group, far) -> None:
    group, rows = choose(make_group, far)
    assert (count_pairs(rows), group.moved(rows)) == (7, 0)


def test_plan_that_saves_more_pairs_than_it_moves_robots_is_taken(make_group) -> None:
    group, rows = choose(make_group, NEARER)
    assert (count_pairs(rows), group.moved(rows)) == (5, 1)


def test_search_near_what_runs_moves_no_more_robots_than_it_saves_pairs(make_group) -> None:
    """Robots of b cannot go to the other server, so one pair fewer is five robots moved."""
    running = [[3, 1, 0], [0, 0, 2]]
    group = make_group((3, 1, 2), [(9, 9, 9), (9, 0, 9)], running)
    assert search(group, serve_most(group, inf)[0], inf, lambda rows: None) == (
        running, [[0, 1, 2], [3, 0, 0]])
    # A robot more of b makes that two pairs fewer, still not worth the moves.
    group = make_group((3, 2, 2), [(9, 9, 9), (9, 0, 9)], running)
    near, far = search(group, serve_most(group, inf)[0], inf, lambda rows: None)
    assert (near, count_pairs(near), count_pairs(far)) == ([[3, 2, 0], [0, 0, 2]], 6, 4)
