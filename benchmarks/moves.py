# SPDX-License-Identifier: Apache-2.0
"""
Moves robots between two servers again and again, and counts what that costs them.

python3 benchmarks/moves.py [--moves 200] [--rate 10] [--robots 8] [--pause 0.5] [--json FILE]

Runs two servers with a model each, a manager and simulated robots on the CPU as processes; all
robots exchange their models, and so their servers, at once, --pause seconds after the last
exchange was in force. Prints how many observations were answered, not answered, answered twice
or wrongly, how long a chunk took (ms; p50, p99, longest) before robots moved and while they did,
the locksteps' median and how long an exchange took. Needs ROS.
"""

import argparse
from collections.abc import Callable
import json
import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import numpy as np

from robion_ros.commands.domain import claim_domain
from robion_ros.factory_file import load
from robion_ros.nodes.observer import Observer
from robion_ros.observed import Report
from robion_ros.processes import environment, factory_processes
from robion_ros.supervisor import Supervisor

PATIENCE = 60.0
STEADY = 10.0
"""How long robots are served before they move, s."""
FACTORY = """
models:
  pick: &arm
    architecture: tiny
    cameras: {{front: raw, wrist: compressed}}
    joints: [joint_1, joint_2, joint_3, joint_4, joint_5, joint_6]
    prompt: pick
    rate: {rate}
    slo: 0.5
    capacity: {robots}
  place: {{<<: *arm, seed: 2}}
servers:
  server_0: {{models: [pick]}}
  server_1: {{models: [place]}}
robots: {{pick: {half}, place: {half}}}
manager: {{server_timeout: 1.0}}
"""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    end = monotonic() + PATIENCE
    while not condition():
        if monotonic() > end:
            raise SystemExit(f'waited in vain until {what}')
        sleep(0.01)


def times(reports: list[Report], since: dict[str, int]) -> dict[str, float]:
    """Return how long the chunks took that came after so many of each robot, ms."""
    kept = [value for report in reports for value in
            report.latency_ms[len(report.latency_ms) - (report.answered - since[report.robot]):]]
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
    sleep(STEADY)
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
    sleep(1.0)
    observer.finish()
    until(lambda: all(report.finished for report in reports()), 'all have finished')
    after = reports()
    return {
        'moves': moved, 'sent': sum(report.sent for report in after),
        'answered': sum(report.answered for report in after),
        'unanswered': sum(report.unanswered for report in after),
        'doubled': sum(report.duplicated for report in after),
        'wrong': sum(report.wrong for report in after),
        'late': sum(report.late for report in after),
        'before, ms': times(before, start),
        'while they move, ms': times(after, {report.robot: report.answered for report in before}),
        'lockstep, ms': lockstep,
        'exchange, ms': median(answer.apply_ms for answer in answers),
        'load': os.getloadavg()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--moves', type=int, default=200)
    parser.add_argument('--rate', type=float, default=10.0)
    parser.add_argument('--robots', type=int, default=8)
    parser.add_argument('--pause', type=float, default=0.5)
    parser.add_argument('--json', type=Path)
    words = parser.parse_args()
    claim_domain(os.environ)
    os.environ |= environment()
    lines: list[str] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'factory.yaml'
        path.write_text(FACTORY.format(rate=words.rate, robots=words.robots,
                                       half=words.robots // 2))
        factory = load(path)
        with Supervisor(factory_processes(factory, path, 'info', None), say=lines.append):
            observer = Observer(factory.servers, 'manager', 'simulated_robots')
            try:
                found = measure(words, observer)
            finally:
                observer.close()
    for key, value in found.items():
        print(f'{key:>20}  {value}')
    for line in lines:
        if 'chunk' in line or ('unanswered' in line and ' 0 unanswered' not in line):
            print(line)
    if words.json:
        words.json.write_text(json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
