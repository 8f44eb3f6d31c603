# SPDX-License-Identifier: Apache-2.0
"""What shedding judges by follows the chunks, and cannot lock itself in."""

import numpy as np
import pytest

from robion_ros.core import ActionChunk, Timings
from robion_ros.engine.service_times import FRESH, ServiceTimes


@pytest.fixture
def told(kit):
    """Return a function that lets chunks, of (finished, seconds), teach service times."""
    def told(*chunks: tuple[float, float]) -> ServiceTimes:
        times = ServiceTimes(['m', 'other'])
        for finished, seconds in chunks:
            times.learn(ActionChunk(kit.request(1), np.zeros((3, 4), np.float32),
                                    Timings(5.0, 0.0, 0.0, 5.0 + seconds), 1, finished))
        return times
    return told


def test_nothing_is_known_at_first(told) -> None:
    assert told().earliest_finish(7.0) == {'m': 7.0, 'other': 7.0}


def test_estimate_approaches_the_time_of_chunks(told) -> None:
    finish = told(*((0.1 * index, 0.5) for index in range(80))).earliest_finish(8.0)
    assert finish['m'] == pytest.approx(8.5, abs=0.01)
    assert finish['other'] == 8.0


def test_one_slow_lockstep_changes_little(told) -> None:
    steady = [(0.1 * index, 0.05) for index in range(80)]
    assert told(*steady, (8.0, 2.0)).earliest_finish(8.0)['m'] < 8.3


def test_slow_lockstep_after_a_pause_changes_nothing(told) -> None:
    steady = [(0.1 * index, 0.05) for index in range(80)]
    assert told(*steady, (60.0, 2.0)).earliest_finish(60.0)['m'] == pytest.approx(60.05, abs=0.01)


def test_estimate_that_no_chunk_confirms_sheds_nothing(told) -> None:
    times = told(*((0.1 * index, 3.0) for index in range(80)))
    assert times.earliest_finish(8.0)['m'] > 10
    assert times.earliest_finish(8.0 + FRESH)['m'] == 8.0 + FRESH


def test_one_fast_chunk_ends_a_slow_spell(told) -> None:
    times = told(*((0.1 * index, 3.0) for index in range(80)), (20.0, 0.05))
    assert times.earliest_finish(20.0)['m'] == pytest.approx(20.05)
