# SPDX-License-Identifier: Apache-2.0
"""
Why a robot that should be heard is not: looked up in the ROS graph.

Asked rarely, since a look-up costs far more than a message.
"""

from collections.abc import Mapping
from time import monotonic

from rclpy.node import Node

from robion_ros.config import ModelConfig
from robion_ros.nodes import qos
from robion_ros.nodes.served_robot import ServedRobot, unheard


def explain_silence(node: Node, robots: Mapping[str, ServedRobot],
                    configs: Mapping[str, ModelConfig]) -> dict[str, str]:
    """Return, and log, why robots that were listened to in vain for a while are not heard."""
    problems = {}
    for name, (model, silent) in unheard(robots, monotonic()).items():
        problems[name] = explain(node, name, silent, configs[model])
        robots[name].say('inputs', problems[name])
    return problems


def explain(node: Node, robot: str, silent: Mapping[str, str], config: ModelConfig) -> str:
    """
    Return a sentence for each silent input of a robot, with the mend where one is known.

    The input's value in silent is what is known of it; '' if it was never heard.
    """
    return '; '.join(f'{name}: {known}' if known
                     else _explain_camera(node, robot, name, config) if name in config.cameras
                     else _explain_topic(node, qos.robot_topic(robot, name))
                     for name, known in silent.items())


def _explain_camera(node: Node, robot: str, name: str, config: ModelConfig) -> str:
    transport = config.cameras[name].transport
    topic = qos.image_topic(robot, name, transport)
    if node.count_publishers(topic):
        types = _types(node, topic)
        wanted = f'sensor_msgs/msg/{"Image" if transport == "raw" else "CompressedImage"}'
        if types != {wanted}:
            return f'{topic} carries {", ".join(sorted(types))}, expected {wanted}'
        return (f'{topic}: camera publisher found, no frames: image may be too large for the '
                'transport (see docs/operations.md, large images)')
    other = qos.image_topic(robot, name, 'compressed' if transport == 'raw' else 'raw')
    if node.count_publishers(other):
        return (f'{topic} has no publisher, but {other} ({", ".join(sorted(_types(node, other)))})'
                f' has: set the transport of camera {name} in the factory file')
    return f'{topic} has no publisher'


def _explain_topic(node: Node, topic: str) -> str:
    found = 'publisher found, no message' if node.count_publishers(topic) else 'no publisher'
    return f'{topic}: {found}'


def _types(node: Node, topic: str) -> set[str]:
    return {info.topic_type for info in node.get_publishers_info_by_topic(topic)}
