# SPDX-License-Identifier: Apache-2.0
"""How often requests are formed, and that what is late or lost leaves no trace in later ones."""


from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.nodes.formation import Formation

from .forming import formation, LIFT, numbers, PERIOD, see, STATE


@pytest.mark.parametrize(('moments', 'formed'), [
    ([0, 0.5, 1.0, 1.5], 4),
    ([0, 0.26, 0.99, 1.26], 4),  # early, early by half a period at most
    ([0, 0.24, 0.5], 2),
    ([0, 0.25, 0.5, 0.75, 1.0, 1.25], 4),
    ([0, 10, 10.1, 10.5], 3),  # a pause saves nothing up
], ids=['punctual', 'jitter', 'too early', 'twice as often', 'after a pause'])
def test_rate(moments: list[float], formed: int) -> None:
    assert len(numbers(formation(), *moments)) == formed


@given(st.lists(st.floats(0.001, 2.0), max_size=60))
def test_the_long_run_rate_is_never_above_the_models(gaps: list[float]) -> None:
    made, now, formed = formation(), 0.0, []
    for gap in gaps:
        now += gap
        if numbers(made, now):
            formed.append(now)
    for first in range(len(formed)):
        for last in range(first, len(formed)):
            assert last - first <= (formed[last] - formed[first]) / PERIOD + 0.5 + 1e-6


@given(st.lists(st.floats(-0.12, 0.12), max_size=40))
def test_jitter_of_a_quarter_period_loses_no_observation(jitter: list[float]) -> None:
    moments = [1.0 + index * PERIOD + shift for index, shift in enumerate(jitter)]
    assert numbers(formation(), *moments) == list(range(1, len(moments) + 1))


@given(st.floats(0.0, 0.45), st.integers(1, 5))
def test_an_observation_that_comes_late_makes_no_later_one_old(late: float, which: int) -> None:
    made, ages = formation(), []
    for number in range(12):
        now = number * PERIOD + (late if number == which else 0.0)
        made.add_state(STATE, now)
        see(made, now)
        # Joint states come between, and would bring out what is held.
        for after in (0.0, 0.02, 0.2):
            if draft := made.form(now + after):
                ages.append(now + after - min(frame.received for frame in draft.frames))
    assert len(ages) >= 11 and max(ages) == 0.0


@pytest.mark.parametrize('lost', ['front', 'wrist'])
def test_a_lost_frame_mixes_no_later_observations(lost: str) -> None:
    made, drafts = formation(), []
    for number in range(10):
        for camera, delay in (('front', 0.0), ('wrist', 0.03)):
            now = number * PERIOD + delay
            made.add_state(STATE, now)
            if (number, camera) != (3, lost):
                see(made, now, camera, published=number)
            drafts.append(made.form(now))
    formed = [{frame.published_ns for frame in draft.frames} for draft in drafts if draft]
    assert formed == [{number} for number in range(10) if number != 3]


def test_another_model_does_not_get_around_the_rate() -> None:
    old = formation()
    assert numbers(old, 1.0) == [1]
    assert numbers(Formation('r', 'other', LIFT, previous=old), 1.1, 1.5) == [2]
