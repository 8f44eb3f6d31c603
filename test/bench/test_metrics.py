# SPDX-License-Identifier: Apache-2.0
"""What records add up to."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.bench.metrics import attainment, percentiles, summarize
from robion_ros.bench.records import Ending

ENDINGS = [ending for ending in Ending if ending is not Ending.ANSWERED]


def test_late_and_unanswered_requests_are_misses(kit) -> None:
    records = [kit.make_record(0.05), kit.make_record(0.1), kit.make_record(0.1001),
               kit.make_record(None, Ending.SUPERSEDED)]
    assert attainment(records) == 0.5
    found = summarize(records)
    assert (found['sent'], found['met'], found['late'], found['superseded']) == (4, 2, 1, 1)
    assert found['latency_ms']['p50'] == pytest.approx(100.0)


@pytest.mark.parametrize('ending', ENDINGS, ids=lambda ending: ending.value)
def test_a_request_without_chunk_is_a_miss_whatever_the_reason(kit, ending: Ending) -> None:
    found = summarize([kit.make_record(None, ending)])
    assert found['attainment'] == 0 and found[ending.value] == 1
    assert found['latency_ms'] == {'p50': None, 'p90': None, 'p95': None, 'p99': None}


def test_the_worst_model_is_the_one_that_counts(kit) -> None:
    found = summarize([kit.make_record(0.05, model='m'), kit.make_record(0.05, model='m'),
                       kit.make_record(0.5, model='n'), kit.make_record(0.05, model='n')])
    assert found['by_model'] == {'m': 1.0, 'n': 0.5}
    assert found['attainment'] == 0.75 and found['worst'] == 0.5


LATENCY = st.one_of(st.none(), st.floats(0, 1))


@given(st.lists(st.tuples(LATENCY, st.sampled_from(ENDINGS), st.sampled_from('mn'))))
def test_sums_match(kit, ends: list[tuple[float | None, Ending, str]]) -> None:
    records = [kit.make_record(latency, ending if latency is None else Ending.ANSWERED, model)
               for latency, ending, model in ends]
    found = summarize(records)
    assert found['sent'] == len(ends) == sum(found[ending.value] for ending in Ending)
    assert found['met'] + found['late'] == found['answered']
    assert found['worst'] <= found['attainment'] <= 1


def test_percentiles_of_nothing_are_none() -> None:
    assert percentiles([])['p99'] is None
    assert percentiles([1.0, 2.0, 3.0])['p50'] == 2.0
