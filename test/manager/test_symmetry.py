# SPDX-License-Identifier: Apache-2.0
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from robion_ros.manager.symmetry import relabel

rows = st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=2), min_size=4, max_size=4)


@settings(deadline=None)
@given(rows=rows, running=rows, twins=st.integers(1, 4))
def test_most_robots_stay(make_group, rows, running, twins) -> None:
    group = make_group((20, 20), [(50, 50 if server < twins else 60 + server)
                                  for server in range(4)], running)
    relabelled = relabel(group, rows)
    assert sorted(relabelled[:twins]) == sorted(rows[:twins])
    assert relabelled[twins:] == rows[twins:]
    assert group.moved(relabelled) == min(
        group.moved([*order, *rows[twins:]]) for order in permutations(rows[:twins]))
    assert relabel(group, relabelled) == relabelled


def test_nothing_changes_without_need(make_group) -> None:
    group = make_group((2, 3), [(9, 9)] * 3)
    assert relabel(group, [[0, 3], [2, 0], [0, 0]]) == [[0, 3], [2, 0], [0, 0]]
