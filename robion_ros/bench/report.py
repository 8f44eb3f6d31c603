# SPDX-License-Identifier: Apache-2.0
"""
What an evaluation found, as the header and rows of a short table.

Reads what results.py keeps. Knows neither terminals nor files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Table = tuple[Sequence[str], Sequence[Sequence[object]]]

LABELS = ('mode', 'policy', 'deadlines')
"""Of a row, beside the number of robots; shown where they differ."""


def make_table(found: Mapping[str, Any]) -> Table:
    """Return the table of any kind of result."""
    if found['kind'] == 'ablation':
        return ablation_table(found['rows'])
    if found['results']:
        return capacity_table(found['results'])
    return sweep_table(found['rows'])


def capacity_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Return the largest number of robots of each way of serving."""
    labels = differing(results)
    rows = [[*(result[label] for label in labels),
             f'{"at least " if result.get("limited") else ""}{result["capacity"]}',
             *figures(result['row'])] for result in results]
    return (*labels, 'robots', 'attainment %', 'p50 ms', 'p99 ms', 'batch'), rows


def sweep_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return attainment and latencies of each way of serving by robots."""
    labels = differing(rows)
    ways = list(dict.fromkeys(tuple(row[label] for label in labels) for row in rows))
    ordered = sorted(rows, key=lambda row: (
        ways.index(tuple(row[label] for label in labels)), row['robots']))
    return ((*labels, 'robots', 'attainment %', 'p50 ms', 'p99 ms', 'batch'),
            [[*(row[label] for label in labels), row['robots'], *figures(row)]
             for row in ordered])


def ablation_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return, for each pair of batches, each way of running it beside the serial one."""
    groups: dict[tuple[str, int, str, int], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        key = row['vlm_model'], row['vlm_batch'], row['adit_model'], row['adit_batch']
        groups.setdefault(key, {}).setdefault(row['way'], []).append(row)
    lines = []
    for (vlm, vlm_batch, adit, adit_batch), ways in groups.items():
        serial, plain, table = (time_of(ways, way) for way in ('serial', 'no cap', 'best cap'))
        fixed = min(ways.get('fixed cap', ()), key=lambda row: row['p50_ms'], default=None)
        best = ways['best cap'][0]['cap'] if 'best cap' in ways else None
        lines.append([
            f'{vlm} {vlm_batch} beside {adit} {adit_batch}', show(serial), show(plain),
            show(table), show(best, '{:d}'),
            show(fixed and fixed['p50_ms']), show(fixed and fixed['cap'], '{:d}'),
            show(serial and plain and serial / plain, '{:.2f}'),
            show(serial and table and serial / table, '{:.2f}')])
    return (('VLM beside ADiT batch', 'serial ms', 'no cap ms', 'best cap ms', 'SMs',
             'best fixed ms', 'SMs ', 'gain no cap', 'gain best cap'), lines)


def time_of(ways: Mapping[str, Sequence[Mapping[str, Any]]], way: str) -> float | None:
    """Return the median of a way of running a pair, ms, if it was measured."""
    return float(ways[way][0]['p50_ms']) if way in ways else None


def figures(row: Mapping[str, Any] | None) -> list[str]:
    """Return attainment, p50, p99 and batch of a row."""
    if row is None:
        return ['-'] * 4
    latency = row['latency_ms']
    return [f'{row["worst"] * 100:.2f}', show(latency['p50']), show(latency['p99']),
            show(row['batch'], '{:.2f}')]


def show(value: Any, form: str = '{:.1f}') -> str:
    """Return a number as text, a dash for none."""
    return '-' if value is None else form.format(value)


def differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the labels whose values are not the same everywhere, the mode in any case."""
    return [label for label in LABELS
            if label == 'mode' or len({str(row.get(label)) for row in rows}) > 1]
