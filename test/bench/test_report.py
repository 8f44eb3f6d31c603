# SPDX-License-Identifier: Apache-2.0
"""Results as tables."""

from typing import Any

from robion_ros.bench.report import make_table


def figures(**changes: Any) -> dict[str, Any]:
    return {'mode': 'lockstep', 'policy': 'earliest_slo_first', 'robots': 8, 'worst': 0.985,
            'latency_ms': {'p50': 40.0, 'p99': 90.55}, 'batch': 1.5, **changes}


def test_capacity_is_a_line_for_each_way() -> None:
    header, rows = make_table({'kind': 'capacity', 'rows': [], 'results': [
        {'mode': 'lockstep', 'policy': 'p', 'capacity': 8, 'limited': True,
         'row': figures()},
        {'mode': 'monolithic', 'policy': 'p', 'capacity': 0, 'row': None}]})
    assert list(header) == ['mode', 'robots', 'attainment %', 'p50 ms', 'p99 ms', 'batch']
    assert rows == [['lockstep', 'at least 8', '98.50', '40.0', '90.5', '1.50'],
                    ['monolithic', '0', '-', '-', '-', '-']]


def test_sweep_is_ordered_by_way_then_robots() -> None:
    counts = ('lockstep', 8), ('lockstep', 2), ('monolithic', 8), ('lockstep', 5)
    _, rows = make_table({'kind': 'sweep', 'results': [], 'rows': [
        figures(mode=mode, robots=robots) for mode, robots in counts]})
    assert [tuple(row[:2]) for row in rows] == [
        ('lockstep', 2), ('lockstep', 5), ('lockstep', 8), ('monolithic', 8)]


def test_only_labels_that_differ_are_shown() -> None:
    header, rows = make_table({'kind': 'sweep', 'results': [], 'rows': [
        figures(policy='round_robin', latency_ms={'p50': None, 'p99': None}), figures()]})
    assert list(header)[:3] == ['mode', 'policy', 'robots']
    assert rows[0] == ['lockstep', 'round_robin', 8, '98.50', '-', '-', '1.50']


def test_ablation_compares_every_way_with_the_serial_one() -> None:
    pair = {'vlm_model': 'm', 'vlm_batch': 2, 'adit_model': 'm', 'adit_batch': 1}
    times = [('serial', None, 30.0), ('no cap', None, 25.0), ('best cap', 104, 20.0),
             ('fixed cap', 96, 21.0), ('fixed cap', 112, 19.9)]
    header, rows = make_table({'kind': 'ablation', 'results': [], 'rows': [
        {**pair, 'way': way, 'cap': cap, 'p50_ms': time} for way, cap, time in times]})
    assert len(header) == len(rows[0])
    assert rows == [['m 2 beside m 1', '30.0', '25.0', '20.0', '104', '19.9', '112', '1.20',
                     '1.50']]


def test_what_was_not_measured_is_a_dash() -> None:
    pair = {'vlm_model': 'm', 'vlm_batch': 2, 'adit_model': 'm', 'adit_batch': 1}
    _, rows = make_table({'kind': 'ablation', 'results': [], 'rows': [
        {**pair, 'way': 'serial', 'cap': None, 'p50_ms': 30.0}]})
    assert rows == [['m 2 beside m 1', '30.0', *'-------']]


def test_nothing_measured_is_an_empty_table() -> None:
    for kind in ('capacity', 'sweep', 'colocate', 'ablation'):
        assert make_table({'kind': kind, 'results': [], 'rows': []})[1] == []
