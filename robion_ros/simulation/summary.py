# SPDX-License-Identifier: Apache-2.0
"""
What a simulated factory came to, as what JSON can hold.

Requests are counted as in bench/metrics.py; times are s since the part that counts began. Knows
neither files nor terminals.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import Any

from robion_ros.bench.metrics import summarize
from robion_ros.bench.records import Record
from robion_ros.bench.trial import as_columns
from robion_ros.simulation.factory import Shortage, Simulated
from robion_ros.simulation.manager import Planned
from robion_ros.simulation.scenario import Scenario
from robion_ros.simulation.server import SimulatedServer


def describe(scenario: Scenario, simulated: Simulated) -> dict[str, Any]:
    """
    Return all figures and every counted request.

    rows: what happened in each second; results: the plans.
    """
    lead, end = scenario.traffic.lead, scenario.when(scenario.traffic.seconds)
    counted = sorted((record for record in simulated.records if record.arrival.counted),
                     key=lambda record: record.arrival.at)
    (_, robots), *_ = scenario.populations
    models = {name: {'robots_at_first': sum(model == name for model in robots.values()),
                     'slo_ms': config.slo * 1e3,
                     **summarize([record for record in counted
                                  if record.arrival.robot.model == name])}
              for name, config in scenario.factory.models.items()}
    return {
        'all': {**summarize(counted), 'homeless': simulated.homeless},
        'models': models,
        'servers': {name: [describe_life(server, scenario, end) for server in simulated.servers
                           if server.name == name] for name in scenario.factory.servers},
        'derived': list(scenario.times.derived),
        'requests': as_columns([counted]),
        'results': [describe_plan(plan, lead) for plan in simulated.plans],
        'rows': describe_seconds(counted, simulated.shortages, lead, scenario.traffic.seconds),
    }


def describe_life(server: SimulatedServer, scenario: Scenario, end: float) -> dict[str, Any]:
    """Return what a server did from its start to its death, or to the last request that counts."""
    lead, served = scenario.traffic.lead, server.served
    until = min(server.died, end)
    time = max(until - server.started, 1e-9)
    counts = {model: sum(name == model for name in server.robots.values())
              for model in server.models}
    return {
        'from': round(server.started - lead, 3),
        'until': None if server.died == inf else round(server.died - lead, 3),
        'robots': {model: count for model, count in counts.items() if count},
        'load': round(sum(count / scenario.factory.capacity(server.name, model)
                          for model, count in counts.items()), 4),
        'answered': served.answered, 'locksteps': served.locksteps,
        'occupancy': round(min(1.0, served.busy / time), 4),
        'paired': round(min(1.0, served.paired / time), 4),
        'batch': round(served.batched / served.batches, 3) if served.batches else None,
    }


def describe_plan(plan: Planned, lead: float) -> dict[str, Any]:
    """Return a plan; gap: how far its objective may be from the least, as a part of it."""
    times = {key: round(getattr(plan, key) - lead, 3) for key in ('caused', 'asked', 'in_force')}
    gap = (plan.objective - plan.bound) / plan.objective if plan.objective else 0.0
    return {**asdict(plan), 'why': list(plan.why), 'left_out': dict(plan.left_out), **times,
            'took': round(plan.in_force - plan.caused, 3), 'gap': round(gap, 4)}


def describe_seconds(records: Sequence[Record], shortages: Sequence[Shortage], lead: float,
                     seconds: float) -> list[dict[str, Any]]:
    """Return the requests of each second and the most robots that had no server in it."""
    bins: list[list[Record]] = [[] for _ in range(max(1, round(seconds + 0.499)))]
    for record in records:
        bins[min(len(bins) - 1, int(record.arrival.at - lead))].append(record)
    times = [shortage.at - lead for shortage in shortages]
    rows = []
    for second, found in enumerate(bins):
        first = max(0, bisect_right(times, second) - 1)
        last = max(first, bisect_left(times, second + 1) - 1)
        known = shortages[first:last + 1]
        rows.append({'second': second, 'robots': known[-1].robots,
                     'unserved': max(each.unserved for each in known), **_count(found)})
    return rows


def _count(records: Sequence[Record]) -> Mapping[str, Any]:
    summary = summarize(records)
    return {'sent': summary['sent'], 'met': summary['met'],
            'attainment': round(summary['attainment'], 5),
            'p50_ms': summary['latency_ms']['p50'], 'p99_ms': summary['latency_ms']['p99']}
