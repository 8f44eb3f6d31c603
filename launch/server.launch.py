# SPDX-License-Identifier: Apache-2.0
"""
Start one server of a factory, on a second machine: the manager finds it in the ROS graph.

The factory file must be the same as the manager's; see `--show-args`.
"""

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration

from robion_ros.factory_file import load
from robion_ros.launching import actions, common
from robion_ros.processes import server_process


def server(context: LaunchContext) -> list[Action]:
    """Turn the server's entry in the factory file into an action."""
    config, name, log_level = (LaunchConfiguration(argument).perform(context)
                               for argument in ('config', 'server', 'log_level'))
    return actions([server_process(load(config), config, name, log_level)])


def generate_launch_description() -> LaunchDescription:
    """Describe one server."""
    return LaunchDescription([
        *common(),
        DeclareLaunchArgument('server', description="the server's name in the factory file"),
        OpaqueFunction(function=server),
    ])
