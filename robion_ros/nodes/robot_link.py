# SPDX-License-Identifier: Apache-2.0
"""
The topics between a server and one robot.

Inputs (cameras, joint states, prompt) come and go with the server's right to listen; outputs
stay until every accepted request is answered. Created and destroyed on the executor's thread
only. Knows neither requests nor the engine.
"""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, Signature
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory

from robion_ros.config import CameraConfig
from robion_ros.msg import ActionChunk
from robion_ros.nodes import qos

OnFrame = Callable[[str, Image | CompressedImage, int], None]
"""Called with camera, message and publish time, ns."""
OnStamped = Callable[[Any, int], None]
"""Called with message and publish time, ns."""
MESSAGE_AND_INFO = Signature([Parameter(name, Parameter.POSITIONAL_ONLY)
                              for name in ('message', 'info')])
# Event handlers must not come and go while an EventsExecutor spins, see spinner.py. What they
# would warn of cannot be, but for a prompt, which two subscriptions hear, and for a robot that
# wants chunks latched; its own ROS warns of that, too.
NO_EVENTS = SubscriptionEventCallbacks(use_default_callbacks=False)
NO_PUBLISHER_EVENTS = PublisherEventCallbacks(use_default_callbacks=False)


class Inputs:
    """Subscriptions to everything a robot publishes, which are opened and closed one by one."""

    def __init__(self, node: Node, robot: str, cameras: Mapping[str, CameraConfig],
                 on_frame: OnFrame, on_state: OnStamped,
                 on_prompt: Callable[[bool, String, int], None]) -> None:
        self.cameras = cameras
        self.hears = True
        """Whether messages are handed on."""
        self._node = node
        self._missing: list[tuple[type, str, QoSProfile, OnStamped]] = []
        self._subscriptions: list[Subscription[Any]] = []
        # A group keeps a trace of all that was ever in it; this one goes with the robot.
        self._group = MutuallyExclusiveCallbackGroup()
        # The cameras last: what they show is asked under the instruction that is known by then.
        # A latched publisher's new prompt comes twice, its old one by the latched reader alone.
        for profile, live in ((qos.LATCHED_QOS, False), (qos.VOLATILE_QOS, True)):
            self._missing.append((String, qos.robot_topic(robot, qos.PROMPT), profile,
                                  partial(on_prompt, live)))
        self._missing.append((JointState, qos.robot_topic(robot, qos.JOINT_STATES),
                              qos.JOINT_STATES_QOS, on_state))
        types = {'raw': Image, 'compressed': CompressedImage}
        for name, camera in cameras.items():
            self._missing.append((
                types[camera.transport], qos.image_topic(robot, name, camera.transport),
                qos.IMAGE_QOS, partial(on_frame, name)))

    def open_next(self) -> bool:
        """Open one more; return whether one was missing."""
        if self._missing:
            self._subscribe(*self._missing.pop(0))
            return True
        return False

    def mute(self) -> None:
        """Hear nothing any more, at no cost; what is there is closed later."""
        self.hears = False

    def close_next(self) -> bool:
        """Close one more, once they are mute; return whether one was there."""
        if self._subscriptions:
            self._node.destroy_subscription(self._subscriptions.pop())
            return True
        return False

    def close(self) -> None:
        """Stop listening."""
        self.mute()
        while self.close_next():
            pass

    def _subscribe(self, kind: type, topic: str, profile: QoSProfile,
                   callback: OnStamped) -> None:
        def heard(*arguments: Any) -> None:
            message, info = arguments if len(arguments) == 2 else arguments[0]
            if self.hears:  # One more message may come even after close.
                callback(message, info['source_timestamp'])
        # By the signature rclpy decides whether to hand over the info.
        heard.__signature__ = MESSAGE_AND_INFO  # type: ignore[attr-defined]
        self._subscriptions.append(self._node.create_subscription(
            kind, topic, heard, profile, callback_group=self._group, event_callbacks=NO_EVENTS))


class Outputs:
    """Publishers of a robot's chunks."""

    def __init__(self, node: Node, robot: str, length: float, trajectory: bool) -> None:
        self._node, self._robot = node, robot
        self._profile = qos.chunk_qos(length)
        self.chunk = node.create_publisher(
            ActionChunk, qos.robot_topic(robot, qos.ACTION_CHUNK), self._profile,
            event_callbacks=NO_PUBLISHER_EVENTS)
        self.trajectory: Publisher[JointTrajectory] | None = None
        if trajectory:
            self.add_trajectory()

    def add_trajectory(self) -> None:
        """Publish chunks as trajectories, too, if that is not done yet."""
        self.trajectory = self.trajectory or self._node.create_publisher(
            JointTrajectory, qos.robot_topic(self._robot, qos.JOINT_TRAJECTORY), self._profile,
            event_callbacks=NO_PUBLISHER_EVENTS)

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
