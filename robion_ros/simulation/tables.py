# SPDX-License-Identifier: Apache-2.0
"""
What a simulation came to, as short tables.

Reads what summary.py describes. Knows neither terminals nor files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from robion_ros.bench.report import show, Table

MOST = 12
"""Servers that are shown one by one; of more, those that show the spread."""
SPREAD = (0.0, 0.25, 0.5, 0.75, 1.0)


def model_table(found: Mapping[str, Any]) -> Table:
    """Return what robots got, by model."""
    rows = [[name, row['robots_at_first'], row['sent'],
             f'{row["attainment"] * 100:.2f}' if row['sent'] else '-',
             show(row['latency_ms']['p50']), show(row['latency_ms']['p99']),
             row['sent'] - row['answered'], show(row['batch'], '{:.2f}')]
            for name, row in found['models'].items()]
    return ('model', 'robots', 'sent', 'attainment %', 'p50 ms', 'p99 ms', 'not answered',
            'batch'), rows


def server_table(found: Mapping[str, Any]) -> Table:
    """Return what servers did, by server; of many, those that show how busy they were."""
    lives = [(name, life) for name, lives in found['servers'].items() for life in lives]
    chosen: Sequence[tuple[str, Mapping[str, Any]]] = lives
    if len(lives) > MOST:
        ordered = sorted(lives, key=lambda item: item[1]['occupancy'])
        chosen = [ordered[round(part * (len(ordered) - 1))] for part in SPREAD]
    rows = [[name, show(life['from'], '{:g}'), show(life['until'], '{:g}'),
             sum(life['robots'].values()), f'{life["load"]:.2f}', life['answered'],
             f'{life["occupancy"] * 100:.1f}', f'{life["paired"] * 100:.1f}',
             show(life['batch'], '{:.2f}')] for name, life in chosen]
    return ('server', 'from s', 'until s', 'robots', 'load', 'answered', 'in locksteps %',
            'both stages %', 'batch'), rows


def plan_table(found: Mapping[str, Any]) -> Table:
    """Return the plans and when they were in force."""
    rows = [[f'{plan["caused"]:.2f}', ', '.join(plan['why']), f'{plan["took"]:.2f}',
             plan['robots'], sum(plan['left_out'].values()), plan['placed'], plan['moved'],
             plan['objective'], f'{plan["gap"] * 100:.1f}', f'{plan["solve_s"] * 1e3:.0f}']
            for plan in found['results']]
    return ('at s', 'why', 'in force after s', 'robots', 'left out', 'placed', 'moved',
            'objective', 'gap %', 'solved in ms'), rows
