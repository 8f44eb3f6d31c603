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
from collections.abc import Callable
from dataclasses import dataclass
import json
import os
from pathlib import Path
from statistics import median
import sys
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import numpy as np

from robion_ros.commands.domain import claim_domain
from robion_ros.factory_file import load
from robion_ros.nodes.observer import Observer
from robion_ros.observed import Counts, Report
from robion_ros.processes import environment, factory_processes, Process
from robion_ros.supervisor import Supervisor

LOCKSTEP = 'ROBION_MOVES_LOCKSTEP'
PATIENCE = 60.0
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
  server_0: {{models: [pick], max_batch: 8}}
  server_1: {{models: [place], max_batch: 8}}
robots: {{pick: {half}, place: {half}}}
manager: {{server_timeout: 1.0}}
"""


@dataclass(frozen=True)
class Held(Process):
    """A server whose stages take the time that is set."""

    def command(self, python: str = sys.executable) -> list[str]:
        """Return the command line that starts it."""
        return [python, '-P', __file__, 'serve', *self.arguments]


def serve() -> int:
    """Run a server node whose stages only take time; its arguments are those of the process."""
    os.environ.setdefault('OMP_NUM_THREADS', '1')  # As main() does, but before torch is loaded.
    from robion_ros.models import tiny
    from robion_ros.nodes import server
    load, seconds = tiny.load, float(os.environ[LOCKSTEP]) / 1e3

    class Sleeper:
        def __init__(self, *arguments: Any) -> None:
            self.model = load(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.model, name)

        def vlm(self, inputs: Any) -> Any:
            sleep(seconds)
            return {}

        def adit(self, context: Any, noise: Any) -> Any:
            sleep(seconds)
            return noise
    tiny.load = Sleeper  # type: ignore[assignment]
    return server.main()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    end = monotonic() + PATIENCE
    while not condition():
        if monotonic() > end:
            raise SystemExit(f'waited in vain until {what}')
        sleep(0.01)


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
    claim_domain(os.environ)
    os.environ |= {**environment(), LOCKSTEP: str(words.lockstep)}
    lines: list[str] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'factory.yaml'
        path.write_text(FACTORY.format(rate=words.rate, robots=words.robots,
                                       half=words.robots // 2))
        factory = load(path)
        processes = [
            Held(**vars(process)) if words.lockstep and process.executable == 'server' else process
            for process in factory_processes(factory, path, 'info', None)]
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
    if sys.argv[1:2] == ['serve']:
        sys.argv.pop(1)
        raise SystemExit(serve())
    main()
