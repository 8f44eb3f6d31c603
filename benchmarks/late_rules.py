# SPDX-License-Identifier: Apache-2.0
"""
Compares what becomes of requests that can no longer meet their deadlines, on virtual time.

python3 benchmarks/late_rules.py [--seconds 60] [--seeds 3] [--policy NAME] [--profile 1.0]
    [--json FILE]

Robots send a request every 0.5 s, from random phases on, to a simulated server, whose stages take
what pi0's take, give or take a few percent. A load of 1 is as many requests as full batches can
answer. Prints, for each load and rule, the requests answered within their deadline, in percent,
and the same of the robot that fares worst. Needs neither a GPU nor ROS.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
import json
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any, get_args

from robion_ros import config
from robion_ros.bench.arrivals import Robot, schedule
from robion_ros.bench.metrics import attainment
from robion_ros.bench.records import Record
from robion_ros.bench.settings import Traffic
from robion_ros.bench.trial import run_epoch
from robion_ros.engine.lockstep_times import Durations
from robion_ros.engine.profile import Load, Pair
from robion_ros.simulation.serving import open_simulated
from robion_ros.simulation.stage_times import StageTimes, Together

RATE = 2.0
"""Of a robot's requests, Hz."""
LOADS = 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5
MAX_BATCH = 2
GAP = 0.0002
"""Between two locksteps, s."""
JITTER, SPIKE, SPIKES = 0.03, 3.0, 0.002
"""Of a stage's time: spread, and how many times longer how many of them take."""
SLOWED = 0.3
"""Part of the shorter stage by which both of a lockstep are longer."""


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


class Uneven(dict[Any, Any]):
    """Times that are a little different whenever they are looked up."""

    def __init__(self, times: Mapping[Any, Any], random: Random) -> None:
        super().__init__(times)
        self._random = random

    def __getitem__(self, key: Any) -> Any:
        slow = self._random.gauss(1, JITTER) * (SPIKE if self._random.random() < SPIKES else 1)
        time = super().__getitem__(key)
        return Together(*(slow * each for each in time)) if isinstance(key, Pair) else slow * time


@dataclass(frozen=True)
class Times(StageTimes):
    """Times of which the engine is told something else."""

    told: float = 1.0
    """How many times too long; 0: nothing."""

    @property
    def stored(self) -> Durations:
        """What the engine knows before its first lockstep."""
        return {pair: self.told * time for pair, time in super().stored.items() if self.told}


def together(vlm: float, adit: float) -> Together:
    """Return what stages take beside each other that take so long alone, s."""
    slowed = SLOWED * min(vlm, adit)
    return Together(vlm + slowed, adit + slowed)


def make_times(models: Mapping[str, Profile], told: float) -> Times:
    """Return what stages of models take."""
    vlm, adit = ({Load(name, size): time for name, profile in models.items()
                  for size, time in getattr(profile, stage).items()} for stage in ('vlm', 'adit'))
    pairs = {Pair(one, other): together(vlm[one], adit[other])
             for one, other in product(vlm, adit)}
    random = Random(0)
    return Times(Uneven(vlm, random), Uneven(adit, random), Uneven(pairs, random), gap=GAP,
                 told=told)


def make_robots(models: Mapping[str, Profile], load: float) -> list[Robot]:
    """Return the robots of a load; each model is an equal part of it."""
    robots = []
    for name, profile in models.items():
        whole = together(profile.vlm[MAX_BATCH], profile.adit[MAX_BATCH]).whole
        robots += [Robot(f'{name}_{index}', name, profile.slo)
                   for index in range(round(load / len(models) * MAX_BATCH / whole / RATE))]
    return robots


def simulate(models: Mapping[str, Profile], load: float, server: config.ServerConfig,
             told: float, traffic: Traffic) -> list[float]:
    """Serve the robots of a load; return the percentage met, of all and of the worst robot."""
    robots, found = make_robots(models, load), []
    with open_simulated(server, make_times(models, told)) as serving:
        for epoch in range(traffic.epochs):
            records = run_epoch(serving, schedule(robots, traffic, epoch), traffic, None, epoch)
            each = defaultdict[str, list[Record]](list)
            for record in records:
                each[record.arrival.robot.name].append(record)
            found.append((attainment(records), min(map(attainment, each.values()))))
    return [100 * mean(column) for column in zip(*found, strict=True)]


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
    traffic = Traffic(RATE, arguments.seeds, arguments.seconds)
    rules = get_args(config.LateRule)
    rows = []
    for mix, models in MIXES.items():
        print(f'{mix}\nload  ' + '  '.join(f'{rule:>13}' for rule in rules))
        for load in LOADS:
            found = {rule: simulate(models, load, config.ServerConfig(
                tuple(models), 'cuda:0', MAX_BATCH, arguments.policy, late=rule),
                arguments.profile, traffic) for rule in rules}
            rows.append({'mix': mix, 'load': load, **found})
            print(f'{load:4.1f}  ' + '  '.join(f'{all_:5.1f} ({worst:5.1f})'
                                               for all_, worst in found.values()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
