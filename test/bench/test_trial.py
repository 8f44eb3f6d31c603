# SPDX-License-Identifier: Apache-2.0
"""A number of robots over all epochs."""

from dataclasses import replace

import pytest

from robion_ros.bench.network import Link, Network
from robion_ros.bench.records import Ending
from robion_ros.bench.settings import Traffic
from robion_ros.bench.trial import measure

TRAFFIC = Traffic(epochs=3, seconds=2.0, lead=0.5, seed=4)


def test_every_counted_request_is_in_the_row_once(kit) -> None:
    ideal = kit.Ideal(lambda robots: 0.05)
    row = measure(ideal, {'m': 0.1, 'n': 0.1}, 5, TRAFFIC)
    counted = [trip.arrival for trips in ideal.epochs for trip in trips if trip.arrival.counted]
    assert row['sent'] == len(counted) == 5 * 4 * 3
    assert row['robots_by_model'] == {'m': 3, 'n': 2}
    assert len(ideal.epochs) == len(row['epochs']) == 3
    assert sum(epoch['sent'] for epoch in row['epochs']) == row['sent']
    columns = row['requests']
    assert sorted(zip(columns['robot'], columns['number'], strict=True)) == sorted(
        (arrival.robot.name, arrival.number) for arrival in counted)
    assert set(columns['latency_ms']) == {50.0} and set(columns['ending']) == {'answered'}
    assert row['passes'] and row['attainment'] == 1


def test_what_is_lost_on_the_way_is_counted(kit) -> None:
    network = Network(Link(1.0, 2.0, loss=0.5), Link(1.0, 2.0))
    row = measure(kit.Ideal(lambda robots: 0.05), {'m': 0.1}, 5, TRAFFIC, network)
    assert row['lost_up'] > 0 and row['lost_up'] + row['answered'] == row['sent']
    assert not row['passes']


def test_a_decided_count_ends_early(kit) -> None:
    ideal = kit.Ideal(lambda robots: 0.2)
    row = measure(ideal, {'m': 0.1}, 5, TRAFFIC, early=True)
    assert row['decided_early'] and len(ideal.epochs) == 1 and not row['passes']
    assert not measure(kit.Ideal(lambda robots: 0.2), {'m': 0.1}, 5, TRAFFIC)['decided_early']


@pytest.mark.parametrize('bad', [0, 1, 2])
def test_all_epochs_decide_together(kit, bad: int) -> None:
    """One bad epoch is a third of all requests: a target of 60 % can still be reached."""
    ideal = kit.Ideal(lambda robots: 0.2 if len(ideal.epochs) - 1 == bad else 0.05)
    row = measure(ideal, {'m': 0.1}, 5, replace(TRAFFIC, target=0.6), early=True)
    assert row['passes'] and len(ideal.epochs) == 3
    assert row['attainment'] == pytest.approx(2 / 3)


def test_a_serving_that_loses_a_request_is_found_out(kit) -> None:
    class Forgetful(kit.Ideal):
        def run(self, trips):
            return super().run(trips)[1:]
    with pytest.raises(AssertionError, match='without exactly one record'):
        measure(Forgetful(lambda robots: 0.05), {'m': 0.1}, 2, TRAFFIC)


def test_a_serving_that_answers_twice_is_found_out(kit) -> None:
    class Eager(kit.Ideal):
        def run(self, trips):
            records = super().run(trips)
            return [*records, kit.make_record(0.1, Ending.ANSWERED)]
    with pytest.raises(AssertionError, match='records without request'):
        measure(Eager(lambda robots: 0.05), {'m': 0.1}, 2, TRAFFIC)
