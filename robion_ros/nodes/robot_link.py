# SPDX-License-Identifier: Apache-2.0
"""
The topics between a server and one robot.

Inputs (cameras, joint states, prompt) come and go with the server's right to listen; outputs
stay until every accepted request is answered. Created and destroyed on the executor's thread
only. Knows neither requests nor the engine.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from robion_ros.config import CameraConfig
from robion_ros.msg import ActionChunk
from robion_ros.nodes import qos

OnFrame = Callable[[str, Image | CompressedImage, int], None]
"""Called with camera, message and publish time, ns."""
QUIET = SubscriptionEventCallbacks(use_default_callbacks=False)
"""No warning that the latched subscription misses a volatile prompt: the other hears it."""


class Inputs:
    """Subscriptions to everything a robot publishes."""

    def __init__(self, node: Node, robot: str, cameras: Mapping[str, CameraConfig],
                 on_frame: OnFrame, on_state: Callable[[JointState], None],
                 on_prompt: Callable[[bool, String, int], None]) -> None:
        self._node = node
        self.cameras = cameras
        types = {'raw': Image, 'compressed': CompressedImage}
        self._subscriptions = [
            node.create_subscription(
                types[camera.transport], qos.image_topic(robot, name, camera.transport),
                _stamped(partial(on_frame, name)), qos.IMAGE_QOS)
            for name, camera in cameras.items()]
        self._subscriptions.append(node.create_subscription(
            JointState, qos.robot_topic(robot, qos.JOINT_STATES), on_state,
            qos.JOINT_STATES_QOS))
        # A latched publisher's new prompt comes twice, its old one by the latched reader alone.
        for profile, live in ((qos.VOLATILE_QOS, True), (qos.LATCHED_QOS, False)):
            self._subscriptions.append(node.create_subscription(
                String, qos.robot_topic(robot, qos.PROMPT),
                _stamped(partial(on_prompt, live)), profile, event_callbacks=QUIET))

    def close(self) -> None:
        """Stop listening."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()


class Outputs:
    """Publishers of a robot's chunks."""

    def __init__(self, node: Node, robot: str, length: float, trajectory: bool) -> None:
        self._node = node
        profile = qos.chunk_qos(length)
        self.chunk = node.create_publisher(
            ActionChunk, qos.robot_topic(robot, qos.ACTION_CHUNK), profile)
        self.trajectory = node.create_publisher(
            JointTrajectory, qos.robot_topic(robot, qos.JOINT_TRAJECTORY),
            profile) if trajectory else None

    @property
    def heard(self) -> bool:
        """Whether somebody listens."""
        return any(publisher.get_subscription_count()
                   for publisher in (self.chunk, self.trajectory) if publisher)

    def close(self) -> None:
        """Stop publishing."""
        for publisher in (self.chunk, self.trajectory):
            if publisher:
                self._node.destroy_publisher(publisher)


def _stamped(callback: Callable[[Any, int], None]) -> Callable[[Any, Mapping[str, int]], None]:
    """Hand a message's publish time to callback(message, published_ns)."""
    def received(message: Any, info: Mapping[str, int]) -> None:
        callback(message, info['source_timestamp'])
    return received
