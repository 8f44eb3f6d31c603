# SPDX-License-Identifier: Apache-2.0
"""
`robion bench manage`: the manager's plans beside simple ones and the best known.

Knows how the evaluation goes; what is measured stands in bench/manage.py.
"""

import argparse
from collections.abc import Callable, Mapping
import json
from pathlib import Path
from typing import Any

from robion_ros.bench.machine import describe_machine, format_machine
from robion_ros.bench.manage import (
    at,
    BASELINES,
    default_limit,
    find_best,
    key_of,
    load_best,
    MARKS,
    measure,
)
from robion_ros.bench.results import Results
from robion_ros.bench.settings import Size
from robion_ros.commands.table import format_table

LONG = 120.0
"""How long the best objective of a factory is searched for, s."""


def run(arguments: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Plan every factory asked for; show what was found, also if it was interrupted."""
    machine = describe_machine([])
    say(format_machine(machine))
    if arguments.record:
        return record(arguments, machine, say)
    results = Results('manage', arguments.json)
    results.describe({key: value if isinstance(value, int | float | str | None) else
                      [str(item) for item in value] for key, value in vars(arguments).items()
                      if key not in ('command', 'kind', 'json')}, machine)
    known = load_best()
    code = 0
    try:
        for size, kind, seed in list_factories(arguments):
            row = measure(size, kind, seed, arguments.seconds or default_limit(size, kind),
                          arguments.changes)
            best = known['objectives'].get(key_of(size, kind, seed))
            results.add_row({**row, 'best_known': best})
            say(f'{key_of(size, kind, seed)}: {row["objective"]}, best known {best}, '
                f'load {row["load_average"][1]:.1f}')
    except KeyboardInterrupt:
        say('interrupted; what was measured until then:')
        code = 130
    print('\n'.join(format_table(*make_table(results.found['rows']))))
    return code


def make_table(rows: list[Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Return a line for each factory."""
    header = ['size', 'kind', 'seed', *BASELINES, 'first ms', 'first',
              *(f'{mark:g} s' for mark in MARKS), 'end', 'bound', 'proven s', 'best', 'above %',
              'moved', 'load']
    lines: list[list[object]] = []
    for row in rows:
        robots = int(row['size'].rpartition('x')[2])
        best = row['best_known']
        above = '-' if best is None else '0.0' if row['objective'] <= best else (
            f'{100 * (row["objective"] / best - 1):.1f}' if best else 'inf')
        moved = row['moved']
        lines.append([
            row['size'], row['kind'], row['seed'],
            *(plain['objective'] if plain['served'] == robots else
              f'{plain["served"]} served' for plain in (row[name] for name in BASELINES)),
            f'{row["first_s"] * 1e3:.0f}', row['first'],
            *('-' if (value := at(row, mark)) is None else value for mark in MARKS),
            row['objective'], row['bound'], f'{row["solve_s"]:.2f}' if row['optimal'] else '-',
            '-' if best is None else best, above,
            f'{sum(moved) / len(moved):.1f}' if moved else '-', f'{max(row["load_average"]):.1f}'])
    return header, lines


def record(arguments: argparse.Namespace, machine: Mapping[str, Any],
           say: Callable[[str], None]) -> int:
    """Search long for the best objectives and write them, with those known, after each."""
    objectives = dict(load_best()['objectives'])
    how = (f'robion bench manage --record: {arguments.seconds or LONG:g} s of search for each '
           f'that is not proven; {machine["cpu"]}, {machine["time"][:10]}')
    for size, kind, seed in list_factories(arguments):
        key = key_of(size, kind, seed)
        found = find_best(size, kind, seed, arguments.seconds or LONG)
        say(f'{key}: {found}, known until now {objectives.get(key)}')
        objectives[key] = min(found, objectives.get(key, found))
        Path(arguments.record).write_text(
            json.dumps({'how': how, 'objectives': objectives}, indent=1) + '\n', encoding='utf-8')
    return 0


def list_factories(arguments: argparse.Namespace) -> list[tuple[Size, str, int]]:
    """Return size, kind and seed of each factory asked for."""
    return [(size, kind, seed) for size in arguments.sizes for kind in arguments.kinds
            for seed in range(arguments.seeds)]
