# SPDX-License-Identifier: Apache-2.0
"""
What a demo has shown: the figures it ends with, and whether they are good enough.

Pure functions on what was observed. Knows neither how a factory is started nor how the figures
are printed.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions, version
import os
import platform
import re
from typing import Any

import numpy as np

from robion_ros.observed import Counts, Rebalanced, Report
from robion_ros.words import count

LEAST_ATTAINMENT = 0.98
"""Least part of the requests that must be answered within their deadline."""

DROPPED = ('superseded', 'shed', 'failed', 'cancelled')
"""Counts that are shown where they are not zero."""
MISTAKES = ('lost', 'duplicated', 'wrong')
"""Counts that are always shown."""

Summary = Mapping[str, Any]


def summarize(reports: Sequence[Report], counts: Iterable[Counts],
              rebalances: Iterable[Rebalanced], seconds: float) -> Summary:
    """
    Return the figures of a demo, by the names they have in its JSON file.

    An observation is a request. The robots know which were answered; the servers know why others
    were not; what neither accounts for is lost.
    """
    total = sum(counts, Counts())
    requests, answered, late, duplicated, wrong = (
        sum(getattr(report, field) for report in reports)
        for field in ('sent', 'answered', 'late', 'duplicated', 'wrong'))
    return {
        'robots': len(reports),
        'seconds': seconds,
        'requests': requests,
        'answered': answered,
        'late': late,
        'superseded': total.superseded,
        'shed': total.shed,
        'failed': total.failed,
        'cancelled': total.cancelled,
        'lost': max(0, requests - answered - total.dropped),
        'duplicated': duplicated,
        'wrong': wrong,
        'slo_attainment': round((answered - late) / requests, 6) if requests else 0.0,
        'latency_ms': percentiles(value for report in reports for value in report.latency_ms),
        'ros_overhead_ms': percentiles(
            value for report in reports for value in report.overhead_ms),
        'rebalances': [{'moved': rebalanced.moved,
                        'to_another_server': rebalanced.to_another_server,
                        'solve_ms': round(rebalanced.solve_ms, 3),
                        'apply_ms': round(rebalanced.apply_ms, 3)} for rebalanced in rebalances],
    }


def find_faults(summary: Summary) -> list[str]:
    """Return what keeps the figures of a demo from being good, a sentence each."""
    faults = []
    if summary['slo_attainment'] < LEAST_ATTAINMENT:
        faults.append(f'{summary["slo_attainment"]:.2%} of the requests met their deadline, '
                      f'must be at least {LEAST_ATTAINMENT:.0%}')
    for key, what in (('lost', 'lost'), ('duplicated', 'answered twice'),
                      ('wrong', 'answered wrongly')):
        if summary[key]:
            faults.append(f'{summary[key]} of {count(summary["requests"], "request")} were {what}')
    if not summary['rebalances']:
        faults.append('there was no rebalance')
    faults += [f'rebalance {index} moved no robot'
               for index, rebalance in enumerate(summary['rebalances'], 1)
               if not rebalance['moved']]
    return faults


def format_summary(summary: Summary, faults: Sequence[str]) -> list[str]:
    """Return the figures, if there are any, and the verdict as text."""
    return [*(format_figures(summary) if summary else ()),
            *([f'not good: {fault}' for fault in faults]
              or [f'good: {summary["slo_attainment"]:.2%} of the requests met their deadline'])]


def format_figures(summary: Summary) -> list[str]:
    """Return the figures as text."""
    dropped = ', '.join(f'{summary[key]} {key}' for key in DROPPED if summary[key])
    robots, requests = count(summary['robots'], 'robot'), count(summary['requests'], 'request')
    lines = [f'{robots}, {summary["seconds"]:g} s, {requests}: {summary["answered"]} answered, '
             f'{summary["late"]} late',
             *([dropped] if dropped else []),
             ', '.join(f'{summary[key]} {key}' for key in MISTAKES)]
    for name, key in (('latency', 'latency_ms'), ('overhead of ROS', 'ros_overhead_ms')):
        p50, p99 = summary[key].values()
        if p50 is not None:
            lines.append(f'{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms')
    return lines + [line for rebalance in summary['rebalances']
                    for line in format_rebalance(rebalance, summary['robots'])]


def format_rebalance(rebalance: Mapping[str, Any], robots: int) -> list[str]:
    """Return what a rebalance of so many robots did, as text."""
    return ['rebalance: {moved} of {robots} moved, {to_another_server} to another server'
            .format_map({**rebalance, 'robots': count(robots, 'robot')}),
            'rebalance: solved in {solve_ms:.0f} ms, in force after {apply_ms:.0f} ms'
            .format_map(rebalance)]


def percentiles(values: Iterable[float]) -> dict[str, float | None]:
    """Return p50 and p99; None where there are no values."""
    known = list(values)
    if not known:
        return {'p50': None, 'p99': None}
    return {name: round(float(np.percentile(known, percent)), 2)
            for name, percent in (('p50', 50), ('p99', 99))}


def describe_machine() -> dict[str, Any]:
    """Return what figures depend on besides the code."""
    return {'cpus': len(os.sched_getaffinity(0)), 'machine': platform.machine(),
            'python': platform.python_version(), 'ros_distro': ros_distro(),
            'torch': version('torch')}


def ros_distro() -> str:
    """Return the name of the ROS distribution; where no setup file told it, that of the wheels."""
    wheels = (re.fullmatch('ros[-_](.+)[-_]rclpy', found.name) for found in distributions())
    return os.environ.get('ROS_DISTRO') or next((wheel[1] for wheel in wheels if wheel), '')
