# SPDX-License-Identifier: Apache-2.0
"""
The factory of a demo: as many robots as asked, and how their models change half way.

Pure functions on FactoryConfig. Knows no process and no ROS.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count, islice

from robion_ros.config import FactoryConfig, FieldError

Populations = Mapping[str, tuple[str, ...]]
"""Robots by model."""


def resize(factory: FactoryConfig, robots: int) -> FactoryConfig:
    """Give a factory robot_1, robot_2, ..., divided among its models as its own robots are."""
    own = {model: len(names) for model, names in factory.robots.items() if names}
    shares = divide(robots, own or dict.fromkeys(factory.models, 1))
    names = (f'robot_{number}' for number in count(1))
    return replace(factory, robots={model: tuple(islice(names, share))
                                    for model, share in shares.items()})


def divide(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide total in proportion to weights; the largest remainders get what is left over."""
    whole = sum(weights.values())
    shares = {name: total * weight // whole for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: -(total * weights[name] % whole))
    for name in by_remainder[:total - sum(shares.values())]:
        shares[name] += 1
    return shares


def swap(factory: FactoryConfig) -> Populations:
    """
    Let three of five robots of the largest model change to another one.

    They keep their cameras and joints, so the other model has to have the same. Raise FieldError
    if there is no such model.
    """
    robots = {model: factory.robots.get(model, ()) for model in factory.models}
    giver = max(robots, key=lambda model: len(robots[model]))
    body = factory.models[giver]
    takers = [model for model, other in factory.models.items() if model != giver
              and (other.cameras, other.joints) == (body.cameras, body.joints)]
    if not robots[giver]:
        raise FieldError('robots', 'there is none; name some, or say how many with --robots')
    if not takers:
        raise FieldError('models', f'the demo has robots change from {giver} to another model: '
                                   'add one with the same cameras and joints')
    taker = min(takers, key=lambda model: len(robots[model]))
    moving = max(1, len(robots[giver]) * 3 // 5)
    return {giver: robots[giver][moving:], taker: robots[giver][:moving] + robots[taker]}
