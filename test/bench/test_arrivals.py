# SPDX-License-Identifier: Apache-2.0
"""Who asks when."""

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.bench.arrivals import make_robots, schedule
from robion_ros.bench.settings import Traffic


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 40), rate=st.floats(0.5, 10), lead=st.floats(0, 2),
       seconds=st.floats(2, 5), epoch=st.integers(0, 5), seed=st.integers(0, 2**32))
def test_every_robot_asks_at_its_rate(count: int, rate: float, lead: float, seconds: float,
                                      epoch: int, seed: int) -> None:
    traffic = Traffic(rate, 6, seconds, lead, seed)
    arrivals = schedule(make_robots({'m': 0.1, 'n': 0.2}, count), traffic, epoch)
    assert [arrival.at for arrival in arrivals] == sorted(arrival.at for arrival in arrivals)
    times: dict[str, list[float]] = {}
    numbers: dict[str, list[int]] = {}
    for arrival in arrivals:
        times.setdefault(arrival.robot.name, []).append(arrival.at)
        numbers.setdefault(arrival.robot.name, []).append(arrival.number)
        assert arrival.counted == (lead <= arrival.at < lead + seconds)
    assert len(times) == count
    for name, moments in times.items():
        assert 0 <= moments[0] < traffic.period
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert gaps == pytest.approx([traffic.period] * len(gaps))
        assert moments[-1] < lead + seconds + traffic.period <= moments[-1] + traffic.period + 1e-9
        assert numbers[name] == list(range(numbers[name][0], numbers[name][0] + len(moments)))


def test_numbers_grow_from_epoch_to_epoch() -> None:
    robots, traffic = make_robots({'m': 0.1}, 3), Traffic(lead=0.3, seconds=1.2)
    seen: Counter[tuple[str, int]] = Counter()
    newest = 0
    for epoch in range(4):
        arrivals = schedule(robots, traffic, epoch)
        assert min(arrival.number for arrival in arrivals) > newest
        newest = max(arrival.number for arrival in arrivals)
        seen.update((arrival.robot.name, arrival.number) for arrival in arrivals)
    assert set(seen.values()) == {1}


def test_a_robot_asks_at_the_same_times_whoever_else_does() -> None:
    traffic = Traffic()
    few, many = (schedule(make_robots({'m': 0.1, 'n': 0.2}, count), traffic, 1)
                 for count in (3, 8))
    assert set(few) < set(many)


def test_phases_differ_from_epoch_to_epoch_and_seed_to_seed() -> None:
    robots = make_robots({'m': 0.1}, 5)

    def phases(seed: int, epoch: int) -> set[float]:
        return {arrival.at for arrival in schedule(robots, Traffic(seed=seed), epoch)}
    assert phases(0, 0) == phases(0, 0)
    assert not phases(0, 0) & phases(0, 1) and not phases(0, 0) & phases(1, 0)


def test_as_many_requests_count_as_the_rate_says() -> None:
    arrivals = schedule(make_robots({'m': 0.1}, 7), Traffic(rate=2.0, seconds=5.0, lead=0.7), 0)
    counted = Counter(arrival.robot.name for arrival in arrivals if arrival.counted)
    assert set(counted.values()) == {10}


def test_robots_are_spread_over_the_models() -> None:
    robots = make_robots({'m': 0.1, 'n': 0.2}, 5)
    assert [robot.model for robot in robots] == ['m', 'n', 'm', 'n', 'm']
    assert {robot.model: robot.slo for robot in robots} == {'m': 0.1, 'n': 0.2}
