# SPDX-License-Identifier: Apache-2.0
"""
Moves robots between two servers again and again, and counts what that costs them.

python3 benchmarks/moves.py [--moves 200] [--rate 10] [--robots 8] [--pause 0.5] [--steady 10]
                            [--lockstep 0] [--json FILE]

Runs two servers with a model each, a manager and simulated robots on the CPU as processes; all
robots exchange their models, and so their servers, at once, --pause seconds after the last
exchange was in force. Prints how many observations were answered, not answered, answered twice
or wrongly, how long a chunk took (ms; p50, p99, longest) during --steady seconds before robots
moved and while they did, how much longer the longest took than the longest before, in locksteps,
how many took more than a lockstep longer than the p99 and the longest before, the locksteps'
median and how long an exchange took. Needs ROS.

With --lockstep MS each stage takes so long, whatever its batch, and computes nothing: a lockstep
longer than what a busy machine adds shows how many of them a move costs.
"""

import argparse
import json
import os
from pathlib import Path
from statistics import median
from time import sleep

from factory import PATIENCE, scripted, serve_or, two_servers, until
import numpy as np

from robion_ros.nodes.observer import Observer
from robion_ros.observed import Counts, Report
from robion_ros.processes import factory_processes
from robion_ros.supervisor import Supervisor

SERVERS = 'models: [pick], max_batch: 8', 'models: [place], max_batch: 8'


def serve(lockstep: float) -> int:
    """Run a server node whose stages only take time, ms."""
    from paced import pace_tiny

    from robion_ros.nodes import server
    pace_tiny(lockstep / 1e3, lockstep / 1e3)
    return server.main()


def latencies(reports: list[Report], since: dict[str, int]) -> list[float]:
    """Return how long the chunks took that came after so many of each robot, ms."""
    counts = {report.robot: report.answered - since[report.robot] for report in reports}
    return [value for report in reports if counts[report.robot]
            for value in report.latency_ms[-counts[report.robot]:]]


def times(kept: list[float]) -> dict[str, float]:
    """Return what is shown of how long chunks took, ms."""
    return {'p50': float(np.percentile(kept, 50)), 'p99': float(np.percentile(kept, 99)),
            'longest': max(kept)}


def measure(words: argparse.Namespace, observer: Observer) -> dict[str, object]:
    """Let the robots of a running factory move; return what it cost."""
    names = {model: [f'{model}_{number}' for number in range(1, words.robots // 2 + 1)]
             for model in ('pick', 'place')}
    robots = [robot for group in names.values() for robot in group]

    def reports() -> list[Report]:
        return [observer.snapshot().reports[robot] for robot in robots]
    until(lambda: all(robot in observer.snapshot().reports and
                      observer.snapshot().reports[robot].answered > 3 for robot in robots),
          'all are served')
    until(lambda: not observer.missing(), 'services are there')
    start = {report.robot: report.answered for report in reports()}
    sleep(words.steady)
    before = reports()
    moved, answers = 0, []
    while moved < words.moves:
        names = {'pick': names['place'], 'place': names['pick']}
        answers.append(observer.rebalance(names).result(PATIENCE))
        if not answers[-1].success or 'without' in answers[-1].message:
            print(answers[-1].message)
        moved += answers[-1].moved
        sleep(words.pause)
    lockstep = median(server.lockstep_ms for server in observer.snapshot().servers.values())
    load = os.getloadavg()
    sleep(1.0)
    observer.finish()
    until(lambda: all(report.finished for report in reports()), 'all have finished')
    after = reports()
    counts = sum(observer.snapshot().counts.values(), Counts())
    calm = latencies(before, start)
    moving = latencies(after, {report.robot: report.answered for report in before})
    shown, unit = times(calm), words.lockstep or lockstep
    return {
        'moves': moved, 'sent': sum(report.sent for report in after),
        'answered': sum(report.answered for report in after),
        'unanswered': sum(report.unanswered for report in after),
        'doubled': sum(report.duplicated for report in after),
        'wrong': sum(report.wrong for report in after),
        'late': sum(report.late for report in after),
        'requests, dropped': (counts.requests, counts.dropped),
        'before, ms': shown, 'while they move, ms': times(moving),
        'chunks': (len(calm), len(moving)),
        'longest beyond longest before, locksteps': (max(moving) - shown['longest']) / unit,
        **{f'more than a lockstep beyond {name}': sum(value > shown[name] + unit
                                                      for value in moving)
           for name in ('p99', 'longest')},
        'lockstep, ms': lockstep,
        'exchange, ms': median(answer.apply_ms for answer in answers),
        'load': load}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--moves', type=int, default=200)
    parser.add_argument('--rate', type=float, default=10.0)
    parser.add_argument('--robots', type=int, default=8)
    parser.add_argument('--pause', type=float, default=0.5)
    parser.add_argument('--steady', type=float, default=10.0, metavar='S')
    parser.add_argument('--lockstep', type=float, default=0.0, metavar='MS')
    parser.add_argument('--json', type=Path)
    words = parser.parse_args()
    lines: list[str] = []
    with two_servers(SERVERS, words.rate, words.robots, 1.0) as (factory, path):
        processes = factory_processes(factory, path, 'info', None)
        if words.lockstep:
            processes = tuple(scripted(process, lockstep=words.lockstep) for process in processes)
        with Supervisor(processes, say=lines.append):
            observer = Observer(factory.servers, 'manager', 'simulated_robots')
            try:
                found = measure(words, observer)
            finally:
                observer.close()
    for key, value in found.items():
        print(f'{key:>40}  {value}')
    for line in lines:
        if 'chunk' in line or ('unanswered' in line and ' 0 unanswered' not in line):
            print(line)
    if words.json:
        words.json.write_text(json.dumps(found, indent=1))


if __name__ == '__main__':
    serve_or(main, serve)
