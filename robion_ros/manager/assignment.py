# SPDX-License-Identifier: Apache-2.0
"""
Which robot goes to which server, with as few moves as possible.

A plan counts robots; here they get names. Knows neither capacities nor how a robot moves.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
import re

from robion_ros.manager.traffic import TrafficPlan

Running = Mapping[str, tuple[str, str]]
"""(model, server) of each robot that is served now."""


@dataclass(frozen=True)
class Move:
    """What changes for one robot; None: it has none."""

    robot: str
    from_server: str | None
    to_server: str | None
    from_model: str | None
    to_model: str | None


def natural(name: str) -> tuple[list[str | int], str]:
    """Return a key that sorts robot_2 before robot_10."""
    words = re.split(r'([0-9]+)', name)
    return [int(word) if index % 2 else word for index, word in enumerate(words)], name


def running_counts(models: Mapping[str, str], running: Running) -> Counter[tuple[str, str]]:
    """Count the robots that could stay, by (server, model): those that keep their model."""
    return Counter((server, model) for robot, (model, server) in running.items()
                   if models.get(robot) == model)


def assign(plan: TrafficPlan, models: Mapping[str, str], running: Running) -> dict[str, str]:
    """
    Return the server of each robot of models (robot to model), as few as possible moved.

    A robot stays while its server has a place of its model. Of the others, those that switch
    model take a place on the server they are on, then all take the places left, in natural
    order. A robot that the plan has no place for gets no server.
    """
    robots = sorted(models, key=natural)
    free = Counter(plan.robots)
    places: dict[str, str] = {}
    for robot in sorted(running.keys() & models.keys(),
                        key=lambda robot: (running[robot][0] != models[robot], natural(robot))):
        place = running[robot][1], models[robot]
        if free[place]:
            free[place] -= 1
            places[robot] = place[0]
    vacant: dict[str, list[str]] = {}
    for server, model in sorted(free.elements(), key=lambda place: natural(place[0])):
        vacant.setdefault(model, []).append(server)
    for robot in robots:
        if robot not in places and vacant.get(models[robot]):
            places[robot] = vacant[models[robot]].pop(0)
    for model, servers in vacant.items():
        if servers:
            raise ValueError(f'the plan serves {len(servers)} more robots of {model} than there '
                             'are; plan again for the robots as they are')
    return {robot: places[robot] for robot in robots if robot in places}


def plan_moves(models: Mapping[str, str], places: Mapping[str, str],
               running: Running) -> tuple[Move, ...]:
    """Return what changes, in natural order, when places (robot to server) replace running."""
    moves = []
    for robot in sorted(models.keys() | running.keys(), key=natural):
        from_model, from_server = running.get(robot, (None, None))
        move = Move(robot, from_server, places.get(robot), from_model, models.get(robot))
        if (move.from_server, move.from_model) != (move.to_server, move.to_model):
            moves.append(move)
    return tuple(moves)


def moved(moves: Iterable[Move]) -> int:
    """Count the robots that had a server and now have another server or model."""
    return sum(move.from_server is not None and move.to_server is not None for move in moves)
