# SPDX-License-Identifier: Apache-2.0
"""What is packed is a plan, if not always one for every robot."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.manager.packing import fill, pack, separate, spread


@st.composite
def groups(draw):
    """Draw robots, capacities by server and model, and a plan of another day."""
    models, servers = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    capacities = [[draw(st.integers(0, 7)) for _ in range(models)] for _ in range(servers)]
    for model in range(models):
        if not any(row[model] for row in capacities):
            capacities[0][model] = 1
    for row in capacities:
        if not any(row):
            row[0] = 1
    return (draw(st.lists(st.integers(0, 9), min_size=models, max_size=models)), capacities,
            [[draw(st.integers(0, 9)) for _ in range(models)] for _ in range(servers)])


@settings(deadline=None)
@given(case=groups())
@pytest.mark.parametrize('make', [
    pack, fill, spread, separate, None], ids=['pack', 'fill', 'spread', 'separate', 'mend'])
def test_nothing_is_overloaded_or_doubled(make_group, make, case) -> None:
    robots, capacities, other = case
    group = make_group(robots, capacities)
    rows = make(group) if make else pack(group, other)
    assert all(served <= count for served, count in zip(group.served(rows), robots, strict=True))
    for row, limits in zip(rows, capacities, strict=True):
        assert all(limit or not count for count, limit in zip(row, limits, strict=True))
        assert sum((Fraction(count, limit) for count, limit in zip(row, limits, strict=True)
                    if limit), Fraction()) <= 1


def test_models_keep_to_themselves_while_there_are_servers(make_group) -> None:
    group = make_group((4, 3), [(6, 6), (6, 6)])
    assert sorted(pack(group)) == sorted(separate(group)) == [[0, 3], [4, 0]]
    assert fill(group) == [[4, 2], [0, 1]]


def test_robots_are_spread_by_load(make_group) -> None:
    assert spread(make_group((6,), [(8,), (4,)])) == [[4], [2]]


def test_mended_plan_stays_as_it_was(make_group) -> None:
    group = make_group((4, 3), [(6, 6), (6, 6)])
    assert pack(group, [[3, 0], [0, 5]]) == [[4, 0], [0, 3]]
