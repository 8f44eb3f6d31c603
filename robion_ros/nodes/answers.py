# SPDX-License-Identifier: Apache-2.0
"""
What the manager answers operators with: plans, changes and refusals as messages.

Pure functions. Knows neither servers nor how a plan is put into force.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from robion_ros.manager import errors
from robion_ros.manager.assignment import Move, moved
from robion_ros.manager.handover import Place
from robion_ros.manager.planner import FactoryPlan
from robion_ros.manager.population import BadPopulation, Population
from robion_ros.msg import RobotAssignment, RobotMove
from robion_ros.nodes.transition import Applied
from robion_ros.srv import Rebalance, RegisterRobot, UnregisterRobot
from robion_ros.words import count

CODES = {errors.OverCapacity: Rebalance.Response.OVER_CAPACITY,
         errors.NoServer: Rebalance.Response.NO_SERVER,
         errors.TimeLimit: Rebalance.Response.TIME_LIMIT,
         errors.InfeasiblePlan: Rebalance.Response.BAD_PLAN,
         BadPopulation: Rebalance.Response.BAD_POPULATION}

Narrow = TypeVar('Narrow', RegisterRobot.Response, UnregisterRobot.Response)


def assignments(models: Mapping[str, str], where: Mapping[str, Place]) -> list[RobotAssignment]:
    """List every robot of models (robot to model) with its server."""
    return [RobotAssignment(robot=robot, model=model,
                            server=where[robot].server if robot in where else '')
            for robot, model in sorted(models.items())]


def changes(moves: Iterable[Move]) -> list[RobotMove]:
    """List what changes."""
    return [RobotMove(robot=move.robot, from_model=move.from_model or '',
                      from_server=move.from_server or '', to_model=move.to_model or '',
                      to_server=move.to_server or '') for move in moves]


def refused(error: Exception) -> Rebalance.Response:
    """Say that there is no plan, and why."""
    return Rebalance.Response(message=str(error), error_code=CODES[type(error)])


def populations(request: Rebalance.Request) -> list[Population]:
    """Return the populations that an operator asks for."""
    return [Population(item.model, item.count, tuple(item.robots))
            for item in request.populations]


def planned(plan: FactoryPlan, models: Mapping[str, str], dry_run: bool,
            unserved: errors.Unserved | None) -> Rebalance.Response:
    """Say what a plan for models (robot to model) is, what it changes and whom it leaves out."""
    number = moved(plan.moves)
    message = (f'{number} of {count(len(plan.places), "robot")} '
               f'{"would move" if dry_run else "moved"}')
    turns = [(bool(move.from_server), bool(move.to_server)) for move in plan.moves]
    for turn, what in (((False, True), 'newly'), ((True, False), 'no longer')):
        message += f', {turns.count(turn)} {what} served' if turn in turns else ''
    return Rebalance.Response(
        success=True, objective=plan.traffic.objective, optimal=plan.traffic.optimal,
        bound=plan.traffic.bound, moved=number, unserved=len(models) - len(plan.places),
        solve_ms=plan.traffic.solve_s * 1e3, changes=changes(plan.moves),
        robots=assignments(models, plan.places),
        message=f'{message}; not served: {unserved}' if unserved else message)


def refused_but(response: Rebalance.Response, unserved: errors.Unserved) -> Rebalance.Response:
    """Refuse a plan that leaves robots out, and say what it would be."""
    response.success = False
    response.error_code = CODES[type(unserved)]
    response.message = (f'{unserved}; allow_partial would serve '
                        f'{len(response.robots) - response.unserved} of {len(response.robots)} '
                        'robots')
    return response


def put_into_force(response: Rebalance.Response, applied: Applied, seconds: float) -> None:
    """Add what became of a plan to what was said of it."""
    response.apply_ms = seconds * 1e3
    troubles = list(applied.failures.values())
    if applied.stayed:
        troubles.append(f'the manager ends; not moved: {", ".join(applied.stayed)}')
    elif troubles:
        troubles.append('trying again')
    if troubles:
        response.success = False
        response.error_code = Rebalance.Response.NOT_APPLIED
        response.message = '; '.join(troubles)
    elif applied.unready:
        response.message += ('; moved without having been heard by their new server: '
                             + ', '.join(sorted(applied.unready)))


def left_out(unserved: errors.Unserved | None) -> list[str]:
    """Say that a plan leaves robots out, if it does."""
    return [f'not every robot is served: {unserved}'] if unserved else []


def narrow(kind: type[Narrow], answer: Rebalance.Response, **more: str) -> Narrow:
    """Say the same of one robot."""
    return kind(success=answer.success, message=answer.message, error_code=answer.error_code,
                changes=answer.changes, **more)


def served_already(robot: str, place: Place) -> RegisterRobot.Response:
    """Say that a robot is served as is asked for."""
    return RegisterRobot.Response(success=True, server=place.server,
                                  message=f'{robot} is served by {place.server} already')


def server_of(answer: Rebalance.Response, robot: str) -> str:
    """Return the server that a plan gives a robot, '' for none."""
    return next((item.server for item in answer.robots if item.robot == robot), '')
