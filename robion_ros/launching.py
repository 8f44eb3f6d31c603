# SPDX-License-Identifier: Apache-2.0
"""
What the launch files share: processes of a factory as actions of ros2 launch.

Imported by launch files only, since launch and launch_ros exist on ROS machines alone. Does not
know which processes a factory has; processes.py does.
"""

from collections.abc import Iterable

from launch.action import Action
from launch.actions import DeclareLaunchArgument, LogInfo, SetEnvironmentVariable, TimerAction
from launch.events.process import ProcessExited
from launch.launch_context import LaunchContext
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from robion_ros.processes import environment, example_config, Process
from robion_ros.supervisor import REFUSAL, RESPAWN_DELAY


def common() -> list[Action]:
    """Return what every launch file begins with: shared arguments and the DDS transport."""
    return [
        DeclareLaunchArgument('config', default_value=str(example_config()),
                              description='path of the factory file'),
        DeclareLaunchArgument('log_level', default_value='info',
                              choices=['debug', 'info', 'warn', 'error', 'fatal'],
                              description='lowest level that is logged'),
        DeclareLaunchArgument('python', default_value='',
                              description='interpreter of the nodes, for example that of a '
                              'virtual environment with torch; empty: python3 on the PATH'),
        *(SetEnvironmentVariable(name, value) for name, value in environment().items()),
    ]


def actions(processes: Iterable[Process]) -> list[Action]:
    """Return an action for each process; one that dies is started again, unless it refused."""
    return [_start(process) for process in processes]


def _start(process: Process) -> Action:
    def on_exit(event: ProcessExited, context: LaunchContext) -> Action | None:
        if not process.respawn or context.is_shutdown:
            return None
        if event.returncode == REFUSAL:
            return LogInfo(msg=f'{process.name} ended with code {REFUSAL}, see above; it is not '
                           'started again')
        return TimerAction(period=RESPAWN_DELAY, actions=[_start(process)])

    # Not launch's own respawn, which knows no exit code for good.
    return Node(package='robion_ros', executable=process.executable,
                arguments=list(process.arguments), prefix=LaunchConfiguration('python'),
                on_exit=on_exit, output='screen', emulate_tty=True,
                # Long enough to finish the requests in flight and to free a GPU's memory.
                sigterm_timeout='10', sigkill_timeout='10')
