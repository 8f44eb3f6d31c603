# SPDX-License-Identifier: Apache-2.0
"""
Start a factory: a server per GPU and the manager of one factory file, and simulated robots.

What is started comes from robion_ros.processes, as for `robion up`; see `--show-args`.
"""

from launch import LaunchContext, LaunchDescription
from launch.action import Action
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration

from robion_ros.factory_file import load
from robion_ros.launching import actions, common
from robion_ros.processes import factory_processes


def factory(context: LaunchContext) -> list[Action]:
    """Turn the process list of the factory file into actions."""
    config, robots, log_level = (LaunchConfiguration(name).perform(context)
                                 for name in ('config', 'robots', 'log_level'))
    if not robots.isdecimal():
        raise ValueError(f'robots:={robots} is not a number; give how many to simulate')
    return actions(factory_processes(load(config), config, log_level, int(robots)))


def generate_launch_description() -> LaunchDescription:
    """Describe the factory."""
    return LaunchDescription([
        *common(),
        DeclareLaunchArgument('robots', default_value='0',
                              description="how many of the file's robots to simulate"),
        OpaqueFunction(function=factory),
    ])
