# SPDX-License-Identifier: Apache-2.0
"""What is expected of a batch follows the profile and the locksteps, and cannot lock itself in."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.engine.lockstep_times import BURST, FRESH, LockstepTimes, never_late
from robion_ros.engine.profile import Load, Pair

ONE, TWO, OTHER = Load('m', 1), Load('m', 2), Load('n', 1)
PROFILE = {Pair(ONE, ONE): 0.012, Pair(TWO, TWO): 0.02, Pair(TWO, ONE): 0.019,
           Pair(ONE, OTHER): 0.015}


def taught(*seconds: float, stored=None, vlm=ONE, adit=ONE, end: float = 8.0) -> LockstepTimes:
    """Let locksteps of one kind, the last of which ends at end, teach times."""
    times = LockstepTimes(PROFILE if stored is None else stored)
    for index, each in enumerate(seconds):
        times.learn(vlm, adit, each, end - 0.01 * (len(seconds) - 1 - index))
    return times


def test_batch_takes_its_lockstep_and_one_like_itself() -> None:
    finish = taught(0.012).foresee(8.0, ONE)
    assert finish(ONE) == pytest.approx(8.0 + 0.012 + 0.012)
    assert finish(TWO) == pytest.approx(8.0 + 0.019 + 0.020)
    assert taught(0.012).foresee(8.0, OTHER)(ONE) == pytest.approx(8.0 + 0.015 + 0.012)


def test_profile_counts_once_a_lockstep_confirms_it() -> None:
    assert taught().foresee(8.0, ONE)(ONE) == 8.0
    assert taught(0.012).foresee(8.0, ONE)(OTHER) == 8.0


def test_without_a_profile_times_are_learnt() -> None:
    times = taught(0.03, 0.025, 0.031, stored={})
    assert times.foresee(8.0, ONE)(ONE) == pytest.approx(8.0 + 2 * 0.025)
    assert times.foresee(8.0, ONE)(TWO) == 8.0


def test_first_lockstep_after_a_pause_runs_beside_nothing() -> None:
    times = taught(0.01, adit=None)
    assert times.foresee(8.0, None)(ONE) == pytest.approx(8.0 + 0.010 + 0.012)


def test_lockstep_that_is_faster_than_its_profile_corrects_it() -> None:
    assert taught(0.006).foresee(8.0, ONE)(ONE) == pytest.approx(8.0 + 0.012)


def test_machine_slower_than_its_profile_is_slower_with_every_batch() -> None:
    finish = taught(*[0.024] * 20).foresee(8.0, ONE)
    assert finish(ONE) == pytest.approx(8.0 + 2 * 0.024)
    assert finish(TWO) == pytest.approx(8.0 + 2 * 0.039)


def test_burst_of_slow_locksteps_changes_nothing() -> None:
    steady = taught(*[0.012] * 50)
    burst = taught(*[0.012] * 50, *[2.0] * BURST)
    assert burst.foresee(8.0, ONE)(TWO) == steady.foresee(8.0, ONE)(TWO)
    assert taught(*[0.012] * 50, *[2.0] * (BURST + 1)).foresee(8.0, ONE)(TWO) > 9.0


def test_slow_spell_is_forgotten_when_it_is_over() -> None:
    times = taught(*[0.12] * 100, *[0.012] * 50)
    assert times.foresee(8.0, ONE)(ONE) == pytest.approx(8.0 + 0.024)


def test_the_least_is_that_of_a_machine_as_slow_as_it_is() -> None:
    """A batch must be launched before its lockstep can start, and no sooner than it must."""
    pair = Pair(TWO, ONE)
    assert taught(*[0.012] * 50).least(pair) == 0.019
    assert taught(*[0.0125] * 50).least(pair) == 0.019, 'they always differ by a little'
    assert taught(*[0.024] * 50).least(pair) == pytest.approx(1.95 * 0.019)
    assert taught(*[0.024] * 40).least(pair) == 0.019, 'too few to tell'
    assert taught(*[0.024] * 80, 0.0121).least(pair) == 0.019, 'it is over'
    assert taught(stored={}).least(pair) == inf


def test_times_that_no_lockstep_confirms_count_for_nothing() -> None:
    times = taught(*[3.0] * 80)
    assert times.foresee(8.0, ONE)(ONE) > 10
    assert times.foresee(8.0 + FRESH, ONE)(ONE) == 8.0 + FRESH


def test_model_is_confirmed_by_its_own_locksteps() -> None:
    times = taught(*[0.012] * 3)
    times.learn(OTHER, None, 0.01, 8.0 + FRESH)
    finish = times.foresee(8.0 + FRESH, None)
    assert finish(ONE) == 8.0 + FRESH < finish(OTHER)
    times.learn(None, ONE, 0.01, 8.0 + FRESH)  # Its ADiT stage is of the model, too.
    assert times.foresee(8.0 + FRESH, ONE)(ONE) > 8.0 + FRESH


@given(st.lists(st.tuples(st.sampled_from([ONE, TWO, OTHER]),
                          st.sampled_from([ONE, TWO, OTHER, None]), st.floats(1e-4, 10)),
                min_size=1))
def test_no_batch_is_expected_before_it_starts_or_beyond_the_slowest(locksteps) -> None:
    times = LockstepTimes({})
    for vlm, adit, seconds in locksteps:
        times.learn(vlm, adit, seconds, 8.0)
    slowest = max(seconds for _, _, seconds in locksteps)
    for load in (ONE, TWO, OTHER):
        assert 8.0 <= times.foresee(8.0, ONE)(load) <= 8.0 + 2 * slowest ** 2 / min(
            seconds for _, _, seconds in locksteps) + 1e-9


def test_who_expects_nothing_expects_nobody_to_be_late() -> None:
    assert never_late(ONE) == float('-inf')
