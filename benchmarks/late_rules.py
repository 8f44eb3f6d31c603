# SPDX-License-Identifier: Apache-2.0
"""
Compares what becomes of requests that can no longer meet their deadlines, on a virtual clock.

python3 benchmarks/late_rules.py [--seconds 60] [--seeds 3] [--policy NAME] [--profile 1.0]
    [--json FILE]

Robots send a request every 0.5 s, from random phases on, to queues, policies and predictions that
are the engine's own; a lockstep takes what pi0's stages take, give or take a few percent. A load
of 1 is as many requests as full batches can answer. Prints, for each load and rule, the requests
answered within their deadline, in percent, and the same of the robot that fares worst. Needs
neither a GPU nor ROS.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import product
import json
from pathlib import Path
from random import Random
from statistics import mean
from typing import get_args

import numpy as np

from robion_ros import config
from robion_ros.core import Observation, Request
from robion_ros.engine.batch import Ticket
from robion_ros.engine.lockstep_times import LockstepTimes, never_late
from robion_ros.engine.policies import POLICIES
from robion_ros.engine.profile import Load
from robion_ros.engine.queues import Queues

PERIOD = 0.5
"""Between two requests of a robot, s."""
LOADS = 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5
MAX_BATCH = 2
GAP = 0.0002
"""Between two locksteps, s."""
JITTER, SPIKE, SPIKES = 0.03, 3.0, 0.002
"""Of a lockstep's time: spread, and how many times longer how many of them take."""
NOTHING = Observation((), np.zeros(0, np.float32), '', 0)


@dataclass(frozen=True)
class Profile:
    """A model: its deadline, and what its stages take alone by batch size, s."""

    slo: float
    vlm: Mapping[int, float]
    adit: Mapping[int, float]


PI0 = Profile(0.156, {1: 0.0096, 2: 0.0164}, {1: 0.008, 2: 0.0085})
SMALL = Profile(0.050, {1: 0.004, 2: 0.0065}, {1: 0.005, 2: 0.0052})
MIXES = {
    'one model, deadline 156 ms': {'pi0': PI0},
    'two of them': {'pi0_a': PI0, 'pi0_b': PI0},
    '156 ms beside a smaller model, 50 ms': {'pi0': PI0, 'small': SMALL},
}


class Machine:
    """What locksteps of models take: the longer stage, and a part of what it overlaps with."""

    def __init__(self, models: Mapping[str, Profile]) -> None:
        self._models = models

    def lockstep(self, vlm: Load | None, adit: Load | None) -> float:
        """Return the time until both stages have ended."""
        stages = [self._models[load.model].vlm[load.batch] for load in (vlm,) if load]
        stages += [self._models[load.model].adit[load.batch] for load in (adit,) if load]
        return max(stages) + (0.3 * min(stages) if len(stages) == 2 else 0.0)

    def chunk(self, vlm: Load | None, adit: Load) -> float:
        """Return the time until the ADiT stage has ended."""
        alone = self._models[adit.model].adit[adit.batch]
        company = self._models[vlm.model].vlm[vlm.batch] if vlm else 0.0
        return alone + 0.3 * min(alone, company)

    def stored(self) -> dict[tuple[Load, Load | None], float]:
        """Return what a profile holds: pairs of loads."""
        loads = [Load(model, size) for model in self._models for size in (1, 2)]
        return {(vlm, adit): self.lockstep(vlm, adit) for vlm, adit in product(loads, loads)}


def traffic(models: Mapping[str, Profile], load: float, seconds: float,
            random: Random) -> Iterator[Request]:
    """Yield requests in the order of their arrival; each model is an equal part of the load."""
    machine = Machine(models)
    robots = []
    for model, profile in models.items():
        full = Load(model, MAX_BATCH)
        each = machine.lockstep(full, full) / MAX_BATCH / PERIOD
        robots += [one_robot(f'{model}_{index}', model, profile.slo, random.uniform(0, PERIOD),
                             seconds) for index in range(round(load / len(models) / each))]
    return merge(*robots, key=lambda request: request.arrived)


def one_robot(robot: str, model: str, slo: float, phase: float,
              seconds: float) -> Iterator[Request]:
    """Yield the requests of a robot."""
    for number in range(int((seconds - phase) / PERIOD)):
        arrived = phase + number * PERIOD
        yield Request(robot, number, model, NOTHING, arrived, arrived + slo)


def simulate(models: Mapping[str, Profile], load: float, rule: str, seed: int, policy: str,
             profile: float, seconds: float) -> tuple[float, float]:
    """Serve the robots of a load; return attainment, of all and of the worst robot."""
    random = Random(seed)
    machine = Machine(models)
    stored = {pair: profile * time for pair, time in machine.stored().items() if profile}
    queues, times = Queues(models, POLICIES[policy], MAX_BATCH), LockstepTimes(stored)
    sent: Counter[str] = Counter()
    met: Counter[str] = Counter()
    requests = traffic(models, load, seconds, random)
    following = next(requests, None)
    now, running = 0.0, None
    while True:
        while following and following.arrived <= now:
            queues.put(Ticket(following, {}, None, following.arrived))  # type: ignore[arg-type]
            sent[following.robot] += 1
            following = next(requests, None)
        adit = Load(running.model, len(running.tickets)) if running else None
        finish = never_late if rule == 'serve' else times.foresee(now, adit)
        if rule == 'shed':
            queues.remove_lost(finish)
        batch = queues.take(now, finish)
        if not batch and not running:
            if not following:
                break
            now = following.arrived
            continue
        vlm = Load(batch.model, len(batch.tickets)) if batch else None
        slow = random.gauss(1, JITTER) * (SPIKE if random.random() < SPIKES else 1)
        if running and adit:
            end = now + slow * machine.chunk(vlm, adit)
            met.update(ticket.request.robot for ticket in running.tickets
                       if end <= ticket.request.deadline)
        taken = GAP + slow * machine.lockstep(vlm, adit)
        now += taken
        times.learn(vlm, adit, taken, now)
        running = batch
    return met.total() / sent.total(), min(met[robot] / sent[robot] for robot in sent)


def main() -> None:
    """Print a table for each mix of models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--seconds', type=float, default=60.0)
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--policy', choices=get_args(config.Policy), default='earliest_slo_first')
    parser.add_argument('--profile', type=float, default=1.0, metavar='F',
                        help='how many times too long the stored times are; 0: there are none')
    parser.add_argument('--json', type=Path, metavar='FILE')
    arguments = parser.parse_args()
    rules = get_args(config.LateRule)
    rows = []
    for mix, models in MIXES.items():
        print(f'{mix}\nload  ' + '  '.join(f'{rule:>13}' for rule in rules))
        for load in LOADS:
            found = {}
            for rule in rules:
                runs = [simulate(models, load, rule, seed, arguments.policy, arguments.profile,
                                 arguments.seconds) for seed in range(arguments.seeds)]
                found[rule] = [100 * mean(each) for each in zip(*runs, strict=True)]
            rows.append({'mix': mix, 'load': load, **found})
            print(f'{load:4.1f}  ' + '  '.join(f'{all_:5.1f} ({worst:5.1f})'
                                               for all_, worst in found.values()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
