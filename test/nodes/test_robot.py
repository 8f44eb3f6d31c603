# SPDX-License-Identifier: Apache-2.0
"""Simulated robots against a server that is made up here: what it does is what they report."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
import re
import signal
import subprocess
import sys
from time import monotonic

from builtin_interfaces.msg import Duration, Time
import cv2
import numpy as np
import pytest
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robion_ros.msg import ActionChunk, Assignment, RobotAssignment, RobotReport
from robion_ros.nodes import qos
from robion_ros.nodes.robot import RobotNode

from .simulated import spinning, Until

pytestmark = pytest.mark.ros

FACTORY = """
models:
  arm:
    architecture: tiny
    cameras: {front: raw, wrist: compressed}
    joints: [a, b]
    prompt: pick the part
    rate: 20.0
    slo: 0.2
    capacity: 4
servers:
  server_0: {models: [arm]}
robots:
  arm: [robot_1, robot_2]
"""
HORIZON = 3
SLO = 0.2


class FakeServer(Node):
    """Listens to robot_1 and answers as its script says; rightly when that has ended."""

    def __init__(self) -> None:
        super().__init__('server_0')
        self.script: deque[str] = deque()
        self.request = 0
        self.held: list[tuple[float, ActionChunk]] = []
        self.images: list[Image] = []
        self.pictures: list[CompressedImage] = []
        self.joints: list[JointState] = []
        self.prompts: list[str] = []
        self.reports: dict[str, RobotReport] = {}
        self.chunks = self.create_publisher(ActionChunk, 'robot_1/action_chunk',
                                            qos.chunk_qos(5.0))
        self.assignment = self.create_publisher(Assignment, 'manager/assignment', qos.LATCHED_QOS)
        self.finish = self.create_client(Trigger, 'robot/finish')
        self.create_subscription(CompressedImage, 'robot_1/wrist/image_raw/compressed',
                                 self.answer, 10)
        self.create_subscription(JointState, 'robot_1/joint_states', self.joints.append,
                                 qos.JOINT_STATES_QOS)
        self.create_subscription(RobotReport, 'robot_reports',
                                 lambda report: self.reports.update({report.robot: report}), 10)
        self.create_timer(0.05, self.send_held)

    def listen_to_front(self) -> None:
        self.create_subscription(Image, 'robot_1/front/image_raw', self.images.append, 10)

    def answer(self, picture: CompressedImage) -> None:
        self.pictures.append(picture)
        chunk = ActionChunk(
            robot='robot_1', model='arm', observation_stamp=picture.header.stamp,
            horizon=HORIZON, names=['a', 'b'], actions=[0.0] * HORIZON * 2,
            engine_time=Duration(nanosec=1))
        match self.script.popleft() if self.script else 'right':
            case 'right':
                self.send(chunk)
            case 'twice':
                self.send(chunk)
                self.send(chunk)
            case 'cut':
                chunk.actions = chunk.actions[1:]
                self.send(chunk)
            case 'late':
                self.held.append((monotonic() + 1.5 * SLO, chunk))

    def send(self, chunk: ActionChunk) -> None:
        self.request += 1
        chunk.request = self.request
        self.chunks.publish(chunk)

    def send_held(self) -> None:
        while self.held and monotonic() > self.held[0][0]:
            self.send(self.held.pop(0)[1])

    def assign(self, *robots: str) -> None:
        self.assignment.publish(Assignment(epoch=1, robots=[
            RobotAssignment(robot=robot, model='arm', server='server_0') for robot in robots]))

    @property
    def report(self) -> RobotReport:
        return self.reports.get('robot_1', RobotReport())


@pytest.fixture
def factory(tmp_path: Path) -> Path:
    path = tmp_path / 'factory.yaml'
    path.write_text(FACTORY)
    return path


@pytest.fixture
def ros(own_domain: None, factory: Path) -> Iterator[None]:
    rclpy.init(args=['--ros-args', '-p', f'config:={factory}', '-p', 'patience:=1',
                     '-p', 'image_width:=32', '-p', 'image_height:=24'])
    yield
    rclpy.shutdown()


@pytest.fixture
def server(ros: None) -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.destroy_node()


@pytest.fixture
def until(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Until]:
    monkeypatch.setattr('robion_ros.nodes.robot.SAY_AGAIN', 0.2)
    with spinning(RobotNode(), server) as until:
        yield until


@pytest.fixture
def pause(until: Until) -> Callable[[float], None]:
    """Spin for a while, s."""
    def spin(seconds: float) -> None:
        end = monotonic() + seconds
        until(lambda: monotonic() > end)

    return spin


def test_what_the_server_did_is_what_the_robot_reports(
        server: FakeServer, until: Until, capfd: pytest.CaptureFixture[str]) -> None:
    server.listen_to_front()
    server.script.extend(['right', 'twice', 'cut', 'silent', 'late'])
    server.assign('robot_1')
    until(lambda: len(server.pictures) >= 10 and not server.held)
    until(server.finish.service_is_ready)
    finish = server.finish.call_async(Trigger.Request())
    until(finish.done)
    assert finish.result().success
    until(lambda: server.report.finished)
    final = server.report
    assert (final.robot, final.model) == ('robot_1', 'arm')
    assert (final.duplicated, final.wrong, final.unanswered) == (1, 1, 2)
    assert final.sent == final.answered + final.unanswered
    assert len(final.latency_ms) == len(final.overhead_ms) == final.answered >= 8
    assert final.late >= 1
    assert max(final.latency_ms) > 1e3 * SLO
    log = capfd.readouterr().err
    assert 'robot_1: duplicated chunk 3: observation' in log
    assert 'robot_1: wrong chunk 4: it has 5 values' in log
    server.reports.clear()
    until(lambda: len(server.reports) == 2 and server.report.finished)
    assert server.report == final, 'it is final, and said again for late subscribers'
    assert server.reports['robot_2'].sent == 0


def test_observations_look_like_those_of_a_robot(server: FakeServer, until: Until) -> None:
    server.listen_to_front()
    server.assign('robot_1')
    server.create_subscription(String, 'robot_1/prompt',
                               lambda prompt: server.prompts.append(prompt.data),
                               qos.LATCHED_QOS)
    until(lambda: len(server.pictures) >= 4 and len(server.images) >= 4 and len(server.joints) > 4
          and bool(server.prompts))
    assert server.prompts == ['pick the part']
    assert list(server.joints[0].name) == ['a', 'b']
    assert not server.joints[0].velocity and not server.joints[0].effort
    assert server.joints[0].position != server.joints[-1].position
    image = server.images[0]
    assert (image.encoding, image.width, image.height, image.step) == ('rgb8', 32, 24, 96)
    assert len(image.data) == 24 * 96
    assert cv2.imdecode(np.frombuffer(server.pictures[0].data, np.uint8), -1).shape == (24, 32, 3)
    for messages in (server.images, server.pictures):
        assert all(one.data != two.data for one, two in pairwise(messages))
        stamps = [ns(message.header.stamp) for message in messages]
        assert all(one < two for one, two in pairwise(stamps))
    both = {ns(image.header.stamp) for image in server.images}
    assert len(both & {ns(picture.header.stamp) for picture in server.pictures}) >= 3


def test_a_robot_publishes_only_while_all_it_needs_is_there(
        server: FakeServer, until: Until, pause: Callable[[float], None],
        capfd: pytest.CaptureFixture[str]) -> None:
    until(lambda: 'waiting for a server in the assignment: robot_1, robot_2'
          in capfd.readouterr().err)
    server.assign('robot_1')
    until(lambda: 'waiting for a subscriber of front: robot_1' in capfd.readouterr().err)
    pause(1.0)
    assert server.joints and not server.pictures
    server.listen_to_front()
    until(lambda: len(server.pictures) >= 3)
    server.assign('robot_2')
    pause(0.3)
    seen = len(server.pictures)
    pause(0.7)
    assert len(server.pictures) == seen, 'it has left the factory'
    server.assign('robot_1')
    until(lambda: len(server.pictures) >= seen + 3)


@pytest.mark.parametrize(('parameter', 'message'), [
    ('robots:=3', 'parameter robots: is 3, must be from 0 to 2'),
    ('robots:=many', "parameter robots of node robot is 'many'"),
    ('patience:=0.1', 'parameter patience: is 0.1, must be from 0.2'),
    ('config:=nowhere.yaml', 'nowhere.yaml'),
])
def test_a_wrong_parameter_is_named(own_domain: None, factory: Path, parameter: str,
                                    message: str) -> None:
    rclpy.init(args=['--ros-args', '-p', f'config:={factory}', '-p', parameter])
    try:
        with pytest.raises(ValueError, match=re.escape(message)):
            RobotNode()
    finally:
        rclpy.shutdown()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM], ids=['SIGINT', 'SIGTERM'])
def test_the_process_ends_with_a_line_for_each_robot(own_domain: None, factory: Path,
                                                     number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, '-m', 'robion_ros.nodes.robot', '--ros-args', '-p',
         f'config:={factory}'], stderr=subprocess.PIPE, text=True, cwd=factory.parent)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert '2 simulated robots' in first
    process.send_signal(number)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 0, rest
    assert 'Traceback' not in rest
    for robot in ('robot_1', 'robot_2'):
        assert f'{robot}: 0 sent' in rest


def ns(stamp: Time) -> int:
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)
