# SPDX-License-Identifier: Apache-2.0
"""
Which robots there are, and of which model, after an operator's request.

Knows neither where robots are served nor whether they fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

from robion_ros.config import (
    check_choice,
    check_free,
    check_name,
    check_range,
    FactoryConfig,
    FieldError,
    ROBOT,
)
from robion_ros.manager.assignment import natural

MOST = 100_000
"""Most robots that a count may ask for."""


class BadPopulation(ValueError):
    """A request that cannot be meant; the message names where, what and the mend."""


@dataclass(frozen=True)
class Population:
    """The robots that one model shall serve, as in msg/Population.msg."""

    model: str
    count: int = 0
    """Used only while robots is empty."""
    robots: tuple[str, ...] = ()


def new_models(factory: FactoryConfig, running: Mapping[str, str],
               populations: Sequence[Population]) -> dict[str, str]:
    """
    Return the model of each robot once populations are applied to running (robot to model).

    A model that is not named keeps its robots; a robot that is named for a model leaves the one
    it had. A count takes the model's robots in natural order, then those the factory file has
    for it, then <model>_<k>; it takes no robot from another model. Raise BadPopulation.
    """
    try:
        _check(factory, populations)
        named = {robot for population in populations for robot in population.robots}
        asked = {population.model for population in populations}
        models = {robot: model for robot, model in running.items()
                  if model not in asked and robot not in named}
        for index, population in enumerate(populations):
            robots = population.robots or tuple(islice(
                _candidates(factory, running, named, population.model), population.count))
            for robot in robots:
                # A name made from a model's is longer, and need not be valid.
                check_name(f'populations[{index}]', robot, ROBOT)
                models[robot] = population.model
    except FieldError as error:
        raise BadPopulation(f'{error}{_at(error)}') from error
    return {robot: models[robot] for robot in sorted(models, key=natural)}


def with_robot(factory: FactoryConfig, running: Mapping[str, str], robot: str,
               model: str) -> dict[str, str]:
    """Return the model of each robot once one has come; raise BadPopulation."""
    try:
        check_choice('model', model, factory.models)
        check_name('robot', robot, ROBOT)
        check_free('robot', robot, _homes(factory))
    except FieldError as error:
        raise BadPopulation(f'{error}{_at(error)}') from error
    models = {**running, robot: model}
    return {name: models[name] for name in sorted(models, key=natural)}


def without_robot(running: Mapping[str, str], robot: str) -> dict[str, str]:
    """Return the model of each robot once one has left; raise BadPopulation."""
    try:
        check_choice('robot', robot, running)
    except FieldError as error:
        raise BadPopulation(str(error)) from error
    return {name: model for name, model in running.items() if name != robot}


def _homes(factory: FactoryConfig) -> dict[str, str]:
    """Return the names that no robot may have, each with where it stands."""
    return {factory.manager.name: 'manager.name',
            **{server: f'servers.{server}' for server in factory.servers}}


def _at(error: FieldError) -> str:
    return f', at {error.other} already' if error.other else ''


def _check(factory: FactoryConfig, populations: Sequence[Population]) -> None:
    """Raise FieldError if a name is unknown or invalid or stands twice, or a count too big."""
    homes = _homes(factory)
    models: dict[str, str] = {}
    for index, population in enumerate(populations):
        key = f'populations[{index}]'
        check_choice(f'{key}.model', population.model, factory.models, 'model')
        check_free(f'{key}.model', population.model, models)
        check_range(f'{key}.count', population.count, 0, MOST)
        for place, robot in enumerate(population.robots):
            check_name(f'{key}.robots[{place}]', robot, ROBOT)
            check_free(f'{key}.robots[{place}]', robot, homes)


def _candidates(factory: FactoryConfig, running: Mapping[str, str], named: set[str],
                model: str) -> Iterator[str]:
    """Yield the robots that a count of a model takes, in order, without end."""
    own = sorted((robot for robot in running if running[robot] == model), key=natural)
    spare = [robot for robot in factory.robots.get(model, ()) if robot not in running]
    yield from (robot for robot in chain(own, spare) if robot not in named)
    taken = {factory.manager.name, *factory.servers, *running, *named,
             *chain.from_iterable(factory.robots.values())}
    yield from (name for k in count(1) if (name := f'{model}_{k}') not in taken)
