# SPDX-License-Identifier: Apache-2.0
"""
What the statuses of several servers say together: who is where, who holds what, who disobeys.

Knows neither how statuses come nor what is done about it.
"""

from collections.abc import Iterable, Mapping

from robion_ros.config import MAX_CAPACITY
from robion_ros.manager.handover import Place
from robion_ros.msg import RobotStatus, ServerStatus


def places(statuses: Mapping[str, ServerStatus],
           state: int = RobotStatus.ACTIVE) -> dict[str, Place]:
    """Return where robots are answered, or in another state, by the word of the servers."""
    newest: dict[str, tuple[int, Place]] = {}
    for name, status in statuses.items():
        for robot in status.robots:
            here = robot.last_request, Place(robot.model, name)
            if robot.state == state:
                # A server that was cut off goes on with robots that another one took over.
                newest[robot.robot] = max(here, newest.get(robot.robot, here))
    return {robot: place for robot, (_, place) in newest.items()}


def robot_models(statuses: Mapping[str, ServerStatus]) -> dict[str, str]:
    """
    Return the model of each robot that servers know, by the word of whoever answers it.

    One that nobody answers, as a move was broken off, is known by who listens to it.
    """
    known = places(statuses, RobotStatus.STANDBY) | places(statuses)
    return {robot: place.model for robot, place in known.items()}


def hosts(statuses: Mapping[str, ServerStatus]) -> dict[str, Iterable[str]]:
    """Return the models that servers hold."""
    return {name: status.models for name, status in statuses.items()}


def capacities(statuses: Mapping[str, ServerStatus]) -> dict[tuple[str, str], int]:
    """Return how many robots servers say they sustain, by server and model."""
    return {(name, model): min(capacity, MAX_CAPACITY) for name, status in statuses.items()
            for model, capacity in zip(status.models, status.capacities, strict=False)}


def loaded(statuses: Mapping[str, ServerStatus], servers: Iterable[str]) -> set[str]:
    """Return the models that some servers hold."""
    return {model for name in servers for model in statuses[name].models}


def obeys(name: str, status: ServerStatus, running: Mapping[str, Place]) -> bool:
    """Return whether a server says that it serves just those robots that run there."""
    return {(robot.robot, robot.model, robot.state) for robot in status.robots
            if robot.state != RobotStatus.LEAVING} == {
        (robot, place.model, RobotStatus.ACTIVE) for robot, place in running.items()
        if place.server == name}


def find_strays(statuses: Mapping[str, ServerStatus], obedient: set[str],
                running: Mapping[str, Place]) -> set[str]:
    """Return the servers, not obedient, that answer robots which obedient ones took over."""
    return {name for name in statuses.keys() - obedient for robot in statuses[name].robots
            if robot.state == RobotStatus.ACTIVE
            and running.get(robot.robot, Place('', name)).server in obedient - {name}}
