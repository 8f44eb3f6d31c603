# SPDX-License-Identifier: Apache-2.0
"""
Who asks when: the simulated robots' requests of one epoch, from the seed alone.

Each robot asks at a fixed rate from a random phase on (paper, section Evaluation). Knows neither
networks nor who serves, so that any way of serving is given the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from robion_ros.bench.settings import Traffic


@dataclass(frozen=True)
class Robot:
    """One simulated robot."""

    name: str
    model: str
    slo: float
    """Time from its observation to the chunk's arrival at it, s."""


@dataclass(frozen=True)
class Arrival:
    """One observation of a robot, that it wants to be answered."""

    robot: Robot
    number: int
    """Grows from request to request of a robot, also from epoch to epoch; from 1."""
    at: float
    """When the robot observes, s since the start of the epoch."""
    counted: bool
    """Whether it is part of the result."""


def make_robots(slos: Mapping[str, float], count: int) -> tuple[Robot, ...]:
    """Return count robots, of one model after the other; the first are those of a lower count."""
    models = list(slos)
    return tuple(Robot(f'robot_{index + 1}', model := models[index % len(models)], slos[model])
                 for index in range(count))


def schedule(robots: Sequence[Robot], traffic: Traffic, epoch: int) -> tuple[Arrival, ...]:
    """
    Return the requests of an epoch, 0 the first, in the order in which they are made.

    Those of the lead come first and are not counted; a period follows after those that count, so
    that the last of these meet the same traffic as the first. A robot's phase depends on the
    seed, the epoch and its place in robots alone.
    """
    end = traffic.lead + traffic.seconds
    most = ceil((end + traffic.period) * traffic.rate)
    phases = np.random.default_rng((traffic.seed, epoch)).uniform(0, traffic.period, len(robots))
    found = []
    for robot, phase in zip(robots, phases.tolist(), strict=True):
        for index in range(most):
            at = phase + index * traffic.period
            if at < end + traffic.period:
                found.append(Arrival(robot, epoch * most + index + 1, at,
                                     traffic.lead <= at < end))
    return tuple(sorted(found, key=lambda arrival: arrival.at))
