# SPDX-License-Identifier: Apache-2.0
"""
One simulated robot: its topics and its clock. What it measures stands in its log.

Knows no other robot, and nothing of the servers but whether somebody listens and answers.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, pi
from time import monotonic
from typing import Any

import cv2
import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String

from robion_ros.config import ModelConfig
from robion_ros.msg import ActionChunk
from robion_ros.nodes import qos
from robion_ros.nodes.convert import to_time
from robion_ros.nodes.robot_log import RobotLog

PICTURES = 8
"""Pictures that the cameras show in turn."""
SETTLE_TIME = 0.5
"""From being connected to the first observation, s: what is lost after that is a loss."""
PROMPT = 'take the next part'
"""Instruction of the robots of a model that has none."""
SWING, PACE = 0.5, 0.6
"""How far joints move from zero, rad, and how fast their phase goes on, rad/s."""


@dataclass(frozen=True)
class Pictures:
    """What cameras show, made once: drawing and encoding in time would slow the robots."""

    width: int
    height: int
    raw: 'tuple[array[int], ...]'
    jpeg: 'tuple[array[int], ...]'


@dataclass(frozen=True)
class Camera:
    """One camera: a message that is filled again and again, and where it goes."""

    name: str
    publisher: Any
    message: Any
    pictures: 'Sequence[array[int]]'


class SimulatedRobot:
    """Publishes observations at a strict period while somebody answers them."""

    def __init__(self, node: Node, log: RobotLog, model: ModelConfig, pictures: Pictures,
                 rng: np.random.Generator,
                 on_chunk: Callable[['SimulatedRobot', ActionChunk], None]) -> None:
        self.log = log
        self.assigned = False
        self.skipped = 0
        """Observations not made because this process was too slow."""
        self._period = 1.0 / model.rate
        self._phase = float(rng.uniform(0.0, self._period))
        self._start = inf
        self._steps = 0
        self._connected_since = inf
        self._newest_stamp = 0
        self._picture = int(rng.integers(len(pictures.raw)))
        self._cameras = [self._make_camera(node, camera, config.transport, pictures)
                         for camera, config in model.cameras.items()]
        self._joint_phases = rng.uniform(0.0, 2 * pi, len(model.joints))
        self._joints = JointState(name=list(model.joints))
        self._joint_states = node.create_publisher(JointState, self._topic(qos.JOINT_STATES),
                                                   qos.JOINT_STATES_QOS)
        self._prompt = node.create_publisher(String, self._topic(qos.PROMPT), qos.LATCHED_QOS)
        self._prompt.publish(String(data=model.prompt or PROMPT))
        self._chunks = node.create_subscription(
            ActionChunk, self._topic(qos.ACTION_CHUNK), lambda chunk: on_chunk(self, chunk),
            qos.CHUNKS_QOS)

    @property
    def running(self) -> bool:
        """Whether it publishes observations."""
        return self._start < inf

    @property
    def due(self) -> float:
        """When the next observation is to be published, s of time.monotonic()."""
        return self._start + self._steps * self._period

    def missing(self) -> tuple[str, ...]:
        """Return what it needs before it can begin."""
        if not self.assigned:
            return ('a server in the assignment',)
        found = [f'a subscriber of {camera.name}' for camera in self._cameras
                 if not camera.publisher.get_subscription_count()]
        if not self._chunks.get_publisher_count():
            found.append(f'a publisher of {qos.ACTION_CHUNK}')
        return tuple(found)

    def begin(self, now: float) -> None:
        """Begin to publish, at its phase, once nothing has been missing for a moment."""
        if self.missing():
            self._connected_since = inf
            return
        self._connected_since = min(self._connected_since, now)
        if now - self._connected_since >= SETTLE_TIME:
            self._start, self._steps = now + self._phase, 0

    def stop(self) -> None:
        """Publish no more observations until it begins again."""
        self._start = self._connected_since = inf

    def observe(self, now_ns: int) -> None:
        """Publish the observation that is due."""
        _, published = self.publish(now_ns)
        behind = max(0, int((published - self.due) / self._period))
        self.skipped += behind
        self._steps += 1 + behind

    def publish(self, now_ns: int) -> tuple[int, float]:
        """
        Publish one picture of every camera, all with one stamp that is the next to grow.

        Return the stamp, ns, and when the last picture left, s of time.monotonic().
        """
        stamp_ns = self._newest_stamp = max(now_ns, self._newest_stamp + 1)
        stamp = to_time(stamp_ns)
        self._picture += 1
        for index, camera in enumerate(self._cameras):
            camera.message.header.stamp = stamp
            camera.message.data = camera.pictures[(self._picture + index) % len(camera.pictures)]
            published = monotonic()
            camera.publisher.publish(camera.message)
        self.log.send(stamp_ns, published)
        return stamp_ns, published

    def move(self, now_ns: int, elapsed: float) -> None:
        """Publish the joint positions of a moment, elapsed s after the start."""
        positions = SWING * np.sin(self._joint_phases + PACE * elapsed)
        self._joints.header.stamp = to_time(now_ns)
        self._joints.position = array('d', positions.tobytes())
        self._joint_states.publish(self._joints)

    def _topic(self, name: str) -> str:
        return qos.robot_topic(self.log.robot, name)

    def _make_camera(self, node: Node, name: str, transport: str, pictures: Pictures) -> Camera:
        raw = transport == 'raw'
        message = (Image(width=pictures.width, height=pictures.height, encoding='rgb8',
                         step=3 * pictures.width) if raw else CompressedImage(format='jpeg'))
        message.header.frame_id = f'{self.log.robot}/{name}'
        topic = qos.image_topic(self.log.robot, name, 'raw' if raw else 'compressed')
        return Camera(name, node.create_publisher(type(message), topic, qos.CAMERA_QOS), message,
                      pictures.raw if raw else pictures.jpeg)


def draw(rng: np.random.Generator, width: int, height: int, count: int = PICTURES) -> Pictures:
    """Draw smooth pictures with a little noise."""
    raw, jpeg = [], []
    for _ in range(count):
        coarse = rng.uniform(0, 255, (6, 8, 3)).astype(np.float32)
        smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        picture = np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)
        raw.append(array('B', picture.tobytes()))
        jpeg.append(array('B', cv2.imencode('.jpg', picture)[1].tobytes()))
    return Pictures(width, height, tuple(raw), tuple(jpeg))
