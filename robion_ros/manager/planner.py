# SPDX-License-Identifier: Apache-2.0
"""
From a factory as it is to a checked plan for every robot: the manager's thinking, whole.

Counts are solved (traffic), checked by an independent hand (evaluate) and turned into concrete
robots with the fewest moves (assignment). Knows neither ROS nor how a plan is put into force.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from robion_ros.config import FactoryConfig
from robion_ros.manager.assignment import assign, Move, plan_moves, running_counts
from robion_ros.manager.errors import Unserved
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.group import Counts
from robion_ros.manager.handover import Place
from robion_ros.manager.traffic import solve, TrafficPlan, TrafficProblem

NONE: Counts = {}
NOWHERE: Mapping[str, Place] = {}
URGENT_TIME = 0.2
"""Most time for a plan that robots wait for, s: a better one would come later than it is worth."""


@dataclass(frozen=True)
class FactoryPlan:
    """Where every robot goes."""

    places: Mapping[str, Place]
    traffic: TrafficPlan
    moves: tuple[Move, ...]
    """What changes, robot by robot."""


def make_problem(factory: FactoryConfig, models: Mapping[str, str],
                 hosts: Mapping[str, Iterable[str]], running: Mapping[str, Place],
                 measured: Counts = NONE) -> TrafficProblem:
    """
    Count the robots of each model; hosts are the living servers and what they have loaded.

    A server of another factory file may have loaded models that this one does not know. measured
    are capacities by server and model, for those that the factory file does not give.
    """
    counts = Counter(models.values())
    loaded = {server: tuple(name for name in names if name in factory.models)
              for server, names in hosts.items()}
    return TrafficProblem(
        robots={name: counts[name] for name in factory.models}, hosts=loaded,
        capacities={(server, name): factory.capacity(server, name)
                    or measured.get((server, name), 0)
                    for server, names in loaded.items() for name in names},
        running=running_counts(models, running),
        priorities={name: model.priority for name, model in factory.models.items()})


def place_robots(problem: TrafficProblem, traffic: TrafficPlan, models: Mapping[str, str],
                 running: Mapping[str, Place], homes: Mapping[str, Place] = NOWHERE
                 ) -> FactoryPlan:
    """Turn counts into robots; raise InfeasiblePlan if the counts break a constraint."""
    here = {robot: place for robot, place in {**running, **homes}.items()
            if place.server in problem.hosts}
    evaluate(problem, traffic)
    servers = assign(traffic, models, here)
    places = {robot: Place(models[robot], server) for robot, server in servers.items()}
    return FactoryPlan(places, traffic, plan_moves(models, servers, running))


def make_plan(factory: FactoryConfig, models: Mapping[str, str],
              hosts: Mapping[str, Iterable[str]], running: Mapping[str, Place],
              measured: Counts = NONE, homes: Mapping[str, Place] = NOWHERE) -> FactoryPlan:
    """
    Plan the robots named in models, each with its model, on the living servers.

    measured are capacities for which there is no figure in the factory file. homes are where
    robots should be rather than where they run: they are not spared the move there.
    Raise errors.Unserved (NoServer, OverCapacity, TimeLimit) where not every robot can be served;
    place_robots turns the plan that it brings into one for those that can.
    """
    problem = make_problem(factory, models, hosts, {**running, **homes}, measured)
    traffic = solve(problem, factory.manager.time_limit)
    return place_robots(problem, traffic, models, running, homes)


def plan_most(factory: FactoryConfig, models: Mapping[str, str],
              hosts: Mapping[str, Iterable[str]],
              running: Mapping[str, Place],
              measured: Counts = NONE, homes: Mapping[str, Place] = NOWHERE,
              urgent: bool = False) -> tuple[FactoryPlan, Unserved | None]:
    """
    Plan for all robots, or for the most that fit and with why not for more.

    urgent is for when robots have lost their server, and wait for the plan.
    """
    if urgent:
        limit = min(URGENT_TIME, factory.manager.time_limit)
        factory = replace(factory, manager=replace(factory.manager, time_limit=limit))
    try:
        return make_plan(factory, models, hosts, running, measured, homes), None
    except Unserved as error:
        return place_robots(error.fitting, error.best, models, running, homes), error
