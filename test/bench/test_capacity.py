# SPDX-License-Identifier: Apache-2.0
"""The search for the largest count."""

from hypothesis import given
from hypothesis import strategies as st

from robion_ros.bench.capacity import search, spread


@given(limit=st.integers(0, 300), first=st.integers(1, 400), resolution=st.integers(1, 20),
       most=st.integers(1, 320))
def test_the_largest_count_that_passes_is_found(limit: int, first: int, resolution: int,
                                                most: int) -> None:
    asked: list[int] = []

    def passes(count: int) -> bool:
        asked.append(count)
        return count <= limit
    found = search(passes, first, resolution, most)
    true = min(limit, most)
    assert true - resolution < found <= true
    assert len(set(asked)) == len(asked) and all(1 <= count <= most for count in asked)
    assert found == 0 or found in asked
    assert len(asked) <= 2 * most.bit_length() + 2


@given(st.lists(st.booleans(), min_size=64, max_size=64), st.integers(1, 64))
def test_noise_ends_the_search_between_a_pass_and_a_failure(answers: list[bool],
                                                            first: int) -> None:
    asked: dict[int, bool] = {0: True}

    def passes(count: int) -> bool:
        asked[count] = answers[count - 1]
        return asked[count]
    found = search(passes, first, most=64)
    assert asked[found] and (found == 64 or not asked[found + 1])


@given(limit=st.integers(1, 3000), tolerance=st.floats(0.0, 0.2))
def test_a_part_of_a_large_count_may_be_given_away(limit: int, tolerance: float) -> None:
    found = search(lambda count: count <= limit, 4, tolerance=tolerance)
    assert found <= limit < found + max(1, tolerance * found) + 1e-6


def test_counts_around_a_limit_are_few_and_different() -> None:
    assert spread(40) == (10, 20, 30, 36, 40, 44, 50, 60, 80)
    assert spread(0) == (1, 2) and spread(1) == (1, 2)
