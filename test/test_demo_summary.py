# SPDX-License-Identifier: Apache-2.0
"""What a demo ends with: figures that add up, and a verdict."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.demo_summary import find_faults, format_summary, percentiles, summarize
from robion_ros.observed import Counts, Rebalanced, Report

MOVED = Rebalanced(True, '3 of 8 robots moved', moved=3, solve_ms=12.3456, apply_ms=150.0,
                   to_another_server=2)
GOOD = summarize([Report('robot_1', sent=50, answered=50, latency_ms=(20.0,)),
                  Report('robot_2', sent=50, answered=49, late=1, latency_ms=(30.0,),
                         overhead_ms=(4.0,))],
                 [Counts(requests=100, answered=99, superseded=1)], [MOVED], 20.0)

small = st.integers(0, 40)


@st.composite
def factories(draw: st.DrawFn) -> tuple[list[Report], list[Counts], int]:
    """Draw robots whose every observation had an end, servers that counted it, and the lost."""
    reports, counts, lost = [], [], 0
    for index in range(draw(st.integers(1, 5))):
        answered, missing = draw(small), draw(small)
        late = draw(st.integers(0, answered))
        ends = [draw(small) for _ in range(4)]
        lost += missing
        reports.append(Report(f'robot_{index}', sent=answered + sum(ends) + missing,
                              answered=answered, late=late))
        counts.append(Counts(answered + sum(ends), answered, late, *ends))
    return reports, counts, lost


def test_figures_have_the_names_and_sums_of_the_contract() -> None:
    assert GOOD == {
        'robots': 2, 'seconds': 20.0, 'requests': 100, 'answered': 99, 'late': 1,
        'superseded': 1, 'shed': 0, 'failed': 0, 'cancelled': 0, 'lost': 0, 'duplicated': 0,
        'wrong': 0, 'slo_attainment': 0.98, 'latency_ms': {'p50': 25.0, 'p99': 29.9},
        'ros_overhead_ms': {'p50': 4.0, 'p99': 4.0},
        'rebalances': [{'moved': 3, 'to_another_server': 2, 'solve_ms': 12.346,
                        'apply_ms': 150.0}]}


@given(factories())
def test_every_request_is_answered_or_dropped_for_a_reason_or_lost(
        factory: tuple[list[Report], list[Counts], int]) -> None:
    reports, counts, lost = factory
    summary = summarize(reports, counts, [], 1.0)
    assert summary['lost'] == lost
    assert summary['requests'] == sum(
        summary[key] for key in ('answered', 'superseded', 'shed', 'failed', 'cancelled', 'lost'))


@pytest.mark.parametrize(('change', 'fault'), [
    ({}, None),
    ({'slo_attainment': 0.9799}, '97.99% of the requests'),
    ({'lost': 1}, '1 of 100 requests were lost'),
    ({'duplicated': 2}, '2 of 100 requests were answered twice'),
    ({'wrong': 3}, '3 of 100 requests were answered wrongly'),
    ({'rebalances': []}, 'there was no rebalance'),
    ({'rebalances': [{'moved': 1}, {'moved': 0}]}, 'rebalance 2 moved no robot'),
], ids=['good', 'late', 'lost', 'duplicated', 'wrong', 'no rebalance', 'nothing moved'])
def test_verdict_names_what_is_not_good(change: Mapping[str, Any], fault: str | None) -> None:
    faults = find_faults({**GOOD, **change})
    assert len(faults) == (fault is not None)
    assert fault is None or faults[0].startswith(fault)


def test_demo_without_requests_is_not_good() -> None:
    summary = summarize([], [], [MOVED], 20.0)
    assert summary['slo_attainment'] == 0.0
    assert summary['latency_ms'] == {'p50': None, 'p99': None}
    assert find_faults(summary)


def test_percentiles_are_those_of_numpy() -> None:
    assert percentiles(range(101)) == {'p50': 50.0, 'p99': 99.0}


def test_text_says_the_figures_and_the_verdict_last() -> None:
    assert format_summary({**GOOD, 'robots': 8}, []) == [
        '8 robots, 20 s, 100 requests: 99 answered, 1 late',
        '1 superseded',
        '0 lost, 0 duplicated, 0 wrong',
        'latency: p50 25.0 ms, p99 29.9 ms',
        'overhead of ROS: p50 4.0 ms, p99 4.0 ms',
        'rebalance: 3 of 8 robots moved, 2 to another server',
        'rebalance: solved in 12 ms, in force after 150 ms',
        'good: 98.00% of the requests met their deadline']
    assert format_summary(GOOD, ['server_0 ended before its time'])[-1] == (
        'not good: server_0 ended before its time')


def test_no_line_is_wider_than_a_terminal_and_no_count_is_left_out() -> None:
    counts = {key: 99_000 + index for index, key in enumerate(
        ('superseded', 'shed', 'failed', 'cancelled', 'lost', 'duplicated', 'wrong'))}
    lines = format_summary({**GOOD, **counts, 'robots': 1}, [])
    assert max(map(len, lines)) <= 80
    assert all(f'{number} {key}' in '\n'.join(lines) for key, number in counts.items())
    assert lines[0].startswith('1 robot, ')


def test_demo_that_did_not_come_to_figures_has_a_verdict() -> None:
    assert format_summary({}, ['waited in vain']) == ['not good: waited in vain']
