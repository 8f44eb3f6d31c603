# SPDX-License-Identifier: Apache-2.0
"""Server nodes in this process, on a ROS domain of its own, and robots that try them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

from builtin_interfaces.msg import Time
import cv2
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
import numpy as np
import pytest
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import Header, String
from trajectory_msgs.msg import JointTrajectory

from robion_ros.msg import ActionChunk, RobotAssignment, RobotStatus, ServerStatus
from robion_ros.nodes import qos
from robion_ros.nodes.server import ServerNode
from robion_ros.nodes.spinner import one_thread, Spinner
from robion_ros.srv import AssignRobots

from ..waiting import holds, TIMEOUT, until

PERIOD = 0.02
"""Longer than the rate of FACTORY's models keeps two requests apart, s."""
GRACE = 0.3
"""What must not happen is given so long to happen, s."""

FACTORY = """
models:
  arm: &arm
    architecture: {architecture}
    cameras: {{front: raw, wrist: compressed}}
    joints: [a, b]
    prompt: pick
    rate: 100.0
    slo: 5.0
    capacity: 4
    joint_trajectory: true
  crane: {{<<: *arm, prompt: lift}}
servers:
  server_0: {{models: [arm, crane]}}
  server_1: {{models: [arm, crane]}}
"""


class Robot:
    """A robot made by hand: publishes what a test tells it to and keeps the chunks it gets."""

    def __init__(self, node: Node, name: str, **profiles: Any) -> None:
        self.name = name
        self._node = node
        self.chunks: list[ActionChunk] = []
        self.trajectories: list[JointTrajectory] = []

        def topic(rest: str) -> str:
            return f'{name}/{rest}'
        self.front = node.create_publisher(Image, topic('front/image_raw'),
                                           profiles.get('front', qos.CAMERA_QOS))
        self.wrist = node.create_publisher(CompressedImage, topic('wrist/image_raw/compressed'),
                                           profiles.get('wrist', qos.IMAGE_QOS))
        self.joints = node.create_publisher(JointState, topic('joint_states'), 10)
        self.prompt = node.create_publisher(String, topic('prompt'),
                                            profiles.get('prompt', qos.VOLATILE_QOS))
        if profiles.get('listens', True):
            self.listen()

    def listen(self) -> None:
        self._node.create_subscription(ActionChunk, f'{self.name}/action_chunk',
                                       self.chunks.append, qos.VOLATILE_QOS)
        self._node.create_subscription(JointTrajectory, f'{self.name}/joint_trajectory',
                                       self.trajectories.append, qos.VOLATILE_QOS)

    def observe(self, seconds: int = 0, **other: Any) -> None:
        """Publish one observation, or of it other messages than the good ones."""
        stamp = Time(sec=seconds)
        for publisher, message in ((self.joints, other.get('joints', joints())),
                                   (self.front, other.get('front', image(stamp))),
                                   (self.wrist, other.get('wrist', picture(stamp)))):
            if message is not None:
                publisher.publish(message)

    def say(self, prompt: str) -> None:
        self.prompt.publish(String(data=prompt))


def image(stamp: Time | None = None, **fields: Any) -> Image:
    values = {'header': Header(stamp=stamp or Time()), 'encoding': 'rgb8', 'width': 8,
              'height': 8, 'step': 24, 'data': bytes(192)}
    return Image(**values | fields)


def picture(stamp: Time | None = None, **fields: Any) -> CompressedImage:
    data = cv2.imencode('.png', np.zeros((8, 8, 3), np.uint8))[1].tobytes()
    return CompressedImage(**{'header': Header(stamp=stamp or Time()), 'format': 'png',
                              'data': data} | fields)


def joints(**fields: Any) -> JointState:
    return JointState(**{'name': ['b', 'a'], 'position': [2.0, 1.0]} | fields)


class World:
    """Everything on the test's ROS domain: servers, robots, and one who calls services."""

    def __init__(self, config: Path) -> None:
        rclpy.init(args=[])
        self.config = config
        self.node = rclpy.create_node('operator')
        self.statuses: defaultdict[str, ServerStatus] = defaultdict(ServerStatus)
        self.diagnostics: dict[str, DiagnosticStatus] = {}
        self.faults: list[Exception] = []
        self._subscribed: set[str] = set()
        self._clients: dict[tuple[str, str], Any] = {}
        self._spinning: dict[Node, tuple[Spinner, Thread]] = {}
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._on_diagnostics, 10)
        self.spin(self.node)

    def spin(self, node: Node) -> None:
        def run() -> None:
            try:
                spinner.spin()
            except ExternalShutdownException:
                pass
            except Exception as error:
                self.faults.append(error)
        spinner = one_thread() if isinstance(node, ServerNode) else Spinner(
            SingleThreadedExecutor())
        spinner.add_node(node)
        thread = Thread(target=run, daemon=True)
        thread.start()
        self._spinning[node] = spinner, thread

    def server(self, name: str = 'server_0', **parameters: Any) -> ServerNode:
        """Start a server node; it is active unless autostart says otherwise."""
        values = {'config': self.config, 'status_rate': 50.0, 'listen_time': 0.0} | parameters
        words = ['--ros-args', '-r', f'__node:={name}']
        for key, value in values.items():
            words += ['-p', f'{key}:={value}']

        class Named(LifecycleNode):
            def __init__(self, node_name: str) -> None:
                super().__init__(node_name, cli_args=words)
        server = type('Server', (ServerNode, Named), {})()
        self.watch(name)
        self.spin(server)
        return server

    def end(self, node: Any) -> None:
        spinner, thread = self._spinning.pop(node)
        spinner.stop()
        thread.join(TIMEOUT)
        assert not thread.is_alive()
        spinner.shutdown()
        if isinstance(node, ServerNode):
            node.close()
        node.destroy_node()

    def close(self) -> None:
        for node in list(self._spinning)[::-1]:
            self.end(node)
        rclpy.shutdown()

    def watch(self, server: str) -> None:
        if server not in self._subscribed:
            self._subscribed.add(server)
            self.node.create_subscription(
                ServerStatus, f'{server}/status',
                lambda status: self.statuses.update({server: status}), qos.LATCHED_QOS)

    def until(self, condition: Callable[[], Any], what: str = 'so') -> None:
        until(lambda: self.faults or condition(), lambda: f'not {what}: {self.statuses}')
        assert not self.faults, self.faults

    def call(self, kind: Any, service: str, request: Any) -> Any:
        key = service, kind.__name__
        if key not in self._clients:
            self._clients[key] = self.node.create_client(kind, service)
        client = self._clients[key]
        self.until(client.service_is_ready, service)
        future = client.call_async(request)
        self.until(future.done, service)
        return future.result()

    def change(self, transition: str | int, server: str = 'server_0') -> bool:
        field = 'id' if isinstance(transition, int) else 'label'
        request = ChangeState.Request(transition=Transition(**{field: transition}))
        return bool(self.call(ChangeState, f'{server}/change_state', request).success)

    def state(self, server: str = 'server_0') -> str:
        answer = self.call(GetState, f'{server}/get_state', GetState.Request())
        return str(answer.current_state.label)

    def assign(self, epoch: int, *robots: RobotAssignment | str,
               server: str = 'server_0') -> AssignRobots.Response:
        items = [place(robot) if isinstance(robot, str) else robot for robot in robots]
        return self.call(AssignRobots, f'{server}/assign',
                         AssignRobots.Request(epoch=epoch, robots=items))

    def robot_status(self, robot: str = 'r', server: str = 'server_0') -> RobotStatus:
        """Return what the newest status says of a robot."""
        return next((item for item in self.statuses[server].robots if item.robot == robot),
                    RobotStatus())

    def heard(self, robot: Robot) -> None:
        """Wait until a server listens to all that a robot says: topics open one after another."""
        self.until(lambda: all(publisher.get_subscription_count() for publisher in
                               (robot.front, robot.wrist, robot.joints, robot.prompt)), robot.name)

    def ready(self, *robots: Robot, server: str = 'server_0') -> None:
        """Wait until both sides hear each other, all requests have ended, and another may come."""
        for robot in robots:
            self.heard(robot)
            robot.chunks.clear()
            while not robot.chunks:  # A first chunk may be sent before the two know each other.
                robot.observe()
                self.until(lambda robot=robot: self.robot_status(robot.name, server).ready)
                if self.robot_status(robot.name, server).state == RobotStatus.STANDBY:
                    break
                holds(lambda robot=robot: robot.chunks, 1.0)
            # Not what a status of before the last observation says.
            newest = max((chunk.request for chunk in robot.chunks), default=0)
            self.until(lambda robot=robot, newest=newest: self.ended(robot.name, server)
                       and self.robot_status(robot.name, server).last_request >= newest)
            robot.chunks.clear()
        sleep(PERIOD)  # An observation that comes sooner is left out.

    def hold(self, robot: Robot, fakes: Any, sec: int = 0) -> None:
        """Let the engine begin a lockstep for a robot that does not end before its gate opens."""
        fakes['pick'][0].gate.clear()
        robot.observe(sec)
        self.until(lambda: not self.ended(robot.name))

    def ended(self, robot: str = 'r', server: str = 'server_0') -> bool:
        status = self.robot_status(robot, server)
        return bool(status.requests == status.answered + status.superseded + status.shed
                    + status.failed + status.cancelled)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        self.diagnostics.update({status.name: status for status in message.status})


def place(robot: str, model: str = 'arm', **fields: Any) -> RobotAssignment:
    return RobotAssignment(robot=robot, model=model, server='server_0', **fields)


@pytest.fixture(scope='session')
def kit() -> SimpleNamespace:
    """Return the parts above, which test modules cannot import."""
    return SimpleNamespace(holds=holds, image=image, picture=picture, joints=joints, place=place,
                           TIMEOUT=TIMEOUT, GRACE=GRACE)


@pytest.fixture
def write_factory(tmp_path: Path) -> Callable[..., Path]:
    """Write the factory file, with words of it replaced by others."""
    def write(architecture: str = 'fake', *replaced: tuple[str, str]) -> Path:
        text = FACTORY.format(architecture=architecture)
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / 'factory.yaml'
        path.write_text(text)
        return path
    return write


@pytest.fixture
def world(own_domain: None, fakes: dict[str, list[Any]],
          write_factory: Callable[..., Path]) -> Iterator[World]:
    world = World(write_factory())
    yield world
    for models in fakes.values():
        for model in models:
            model.gate.set()
    world.close()
    assert not world.faults


@pytest.fixture
def robot(world: World) -> Callable[..., Robot]:
    """Make a robot."""
    return lambda name='r', **profiles: Robot(world.node, name, **profiles)
