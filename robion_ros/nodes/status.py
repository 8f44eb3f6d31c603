# SPDX-License-Identifier: Apache-2.0
"""
A server described as messages: ServerStatus, and /diagnostics for the usual ROS tools.

Pure functions. Knows no publisher and no timer.
"""

from collections.abc import Mapping
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes.convert import from_duration, to_duration
from robion_ros.nodes.diagnostics import diagnostic
from robion_ros.nodes.served_robot import ServedRobot

if TYPE_CHECKING:
    from robion_ros.nodes.serving import Serving

COUNTED = ('requests', 'answered', 'late', 'superseded', 'shed', 'failed', 'cancelled', 'refused')
MESSAGES = {RobotStatus.STANDBY: 'standby: listened to, not answered',
            RobotStatus.ACTIVE: 'served', RobotStatus.LEAVING: 'leaving'}


def robot_status(robot: ServedRobot) -> RobotStatus:
    """Describe one robot."""
    formation = robot.formation
    handover = robot.handover
    return RobotStatus(
        robot=robot.name, model=formation.model if formation else '', state=robot.state,
        ready=robot.ready, last_request=handover.last_request, watermark=handover.watermark,
        prompt=handover.prompt, prompt_stamp=handover.prompt_stamp, last_error=robot.last_error,
        **{name: getattr(robot.counters, name) for name in COUNTED})


def server_status(serving: 'Serving | None', **fields: Any) -> ServerStatus:
    """Describe a server, by fields of its own, with the models that it holds and its robots."""
    status = ServerStatus(**fields)
    if serving:
        stats = serving.engine.stats()
        # What was asked for in a term that has just ended is of that one.
        status.term, status.epoch = serving.roster.term, stats.epoch
        status.robots = [robot_status(robot) for robot in serving.roster.robots.values()]
        status.waiting, status.locksteps = stats.waiting, stats.locksteps
        status.lockstep_time = to_duration(stats.lockstep_time)
        if status.state != ServerStatus.UNCONFIGURED:
            status.models = list(serving.capacities)
            status.capacities = list(serving.capacities.values())
    return status


def diagnostics(status: ServerStatus, problems: Mapping[str, str]) -> DiagnosticArray:
    """
    Describe the same for /diagnostics.

    problems gives, for a robot (or '' for the server), what needs an operator's eye now.
    """
    serving = status.state == ServerStatus.ACTIVE
    server = diagnostic(
        status.server, '', problems.get('', 'serving' if serving else 'not serving'),
        DiagnosticStatus.ERROR if '' in problems else
        DiagnosticStatus.OK if serving else DiagnosticStatus.WARN,
        {'device': status.device, 'models': ' '.join(status.models),
         'capacities': ' '.join(map(str, status.capacities)), 'epoch': status.epoch,
         'robots': len(status.robots), 'waiting': status.waiting, 'locksteps': status.locksteps,
         'lockstep ms': round(1e3 * from_duration(status.lockstep_time), 2)})
    robots = [
        diagnostic(status.server, robot.robot, problems.get(robot.robot, MESSAGES[robot.state]),
                    DiagnosticStatus.WARN if robot.robot in problems else DiagnosticStatus.OK,
                    {'model': robot.model, 'ready': robot.ready, 'last error': robot.last_error}
                    | {name: getattr(robot, name) for name in COUNTED})
        for robot in status.robots]
    return DiagnosticArray(header=status.header, status=[server, *robots])
