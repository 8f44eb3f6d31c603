# SPDX-License-Identifier: Apache-2.0
"""Simulated robots that observe by plan, before a server that answers some of it."""

from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from builtin_interfaces.msg import Duration
import pytest
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState

from robion_ros.msg import ActionChunk
from robion_ros.nodes import qos
from robion_ros.nodes.traffic import TrafficNode
from robion_ros.traffic_files import TrafficFiles

from .simulated import spinning, Until

pytestmark = pytest.mark.ros

FACTORY = """
models:
  arm: {architecture: tiny, cameras: {front: raw}, joints: [a, b], rate: 2, slo: 0.2, capacity: 4}
servers:
  server_0: {models: [arm]}
robots:
  arm: [robot_1, robot_2, robot_3, robot_4]
"""


class FakeServer(Node):
    """Answers robots as its script says; silent, twice, wrong, or right where it has ended."""

    def __init__(self) -> None:
        super().__init__('server_0')
        self.script: deque[str] = deque()
        self.images: defaultdict[str, list[Image]] = defaultdict(list)
        self.states: set[str] = set()
        self.number = 0
        self.chunks = {}
        for robot in ('robot_2', 'robot_3'):
            self.chunks[robot] = self.create_publisher(
                ActionChunk, f'{robot}/action_chunk', qos.chunk_qos(5.0))
            self.create_subscription(Image, f'{robot}/front/image_raw',
                                     lambda image, robot=robot: self.answer(robot, image), 10)
            self.create_subscription(JointState, f'{robot}/joint_states',
                                     lambda state, robot=robot: self.states.add(robot),
                                     qos.JOINT_STATES_QOS)

    def answer(self, robot: str, image: Image) -> None:
        self.images[robot].append(image)
        deed = self.script.popleft() if self.script else 'right'
        for _ in range({'silent': 0, 'twice': 2}.get(deed, 1)):
            self.number += 1
            self.chunks[robot].publish(ActionChunk(
                robot=robot, model='arm' if deed != 'wrong' else 'crane', request=self.number,
                observation_stamp=image.header.stamp, horizon=1, names=['a', 'b'],
                actions=[0.0, 0.0], engine_time=Duration(nanosec=50_000_000),
                vlm_time=Duration(nanosec=20_000_000), adit_time=Duration(nanosec=10_000_000),
                batch=2))


@pytest.fixture
def server(own_domain: None, tmp_path: Path) -> Iterator[FakeServer]:
    (tmp_path / 'factory.yaml').write_text(FACTORY)
    rclpy.init(args=['--ros-args', '-p', f'config:={tmp_path}/factory.yaml', '-p',
                     f'folder:={tmp_path}', '-p', 'first:=1', '-p', 'robots:=2',
                     '-p', 'patience:=0.5', '-p', 'image_width:=32', '-p', 'image_height:=24'])
    server = FakeServer()
    yield server
    server.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def until(server: FakeServer) -> Iterator[Until]:
    with spinning(TrafficNode(), server) as until:
        yield until


def test_robots_observe_when_they_are_told_and_say_what_came_back(
        server: FakeServer, until: Until, tmp_path: Path) -> None:
    files = TrafficFiles(str(tmp_path), 1)
    # robot_1 is another process'.
    files.write_plan({'robot_1': [0.0], 'robot_2': [0.1, 0.3, 0.5], 'robot_3': [0.2]})
    until(lambda: files.is_ready('traffic'))
    assert not server.images
    start = monotonic() + 0.3
    server.script.extend(['right', 'right', 'silent'])
    files.write_start(start)
    until(lambda: files.read_found('traffic'))
    found = files.read_found('traffic')
    assert found and found.mistakes == 0
    assert {robot: len(items) for robot, items in found.robots.items()} == {
        'robot_2': 3, 'robot_3': 1}
    first, missed, last = found.robots['robot_2']
    for item, at in ((first, 0.1), (missed, 0.3), (last, 0.5), (found.robots['robot_3'][0], 0.2)):
        assert item.published >= start + at
    assert missed.arrived is None
    assert first.arrived and last.arrived and last.arrived > last.published
    assert (first.engine, first.vlm, first.adit, first.batch) == (0.05, 0.02, 0.01, 2)
    assert server.states == {'robot_2', 'robot_3'}
    pictures = [bytes(image.data) for image in server.images['robot_2']]
    assert len(set(pictures)) == 3


def test_one_plan_follows_the_other(server: FakeServer, until: Until, tmp_path: Path) -> None:
    for number, robots in ((1, ['robot_2']), (2, ['robot_3', 'robot_2']), (3, [])):
        files = TrafficFiles(str(tmp_path), number)
        files.write_plan({robot: [0.0] for robot in robots})
        until(lambda files=files: files.is_ready('traffic'))
        files.write_start(monotonic())
        until(lambda files=files: files.read_found('traffic'))
        found = files.read_found('traffic')
        assert found and set(found.robots) == set(robots)
        assert all(item.arrived for items in found.robots.values() for item in items)


def test_mistakes_are_counted(server: FakeServer, until: Until, tmp_path: Path) -> None:
    files = TrafficFiles(str(tmp_path), 1)
    files.write_plan({'robot_2': [0.0, 0.1, 0.2]})
    until(lambda: files.is_ready('traffic'))
    server.script.extend(['twice', 'wrong', 'right'])
    files.write_start(monotonic())
    until(lambda: files.read_found('traffic'))
    found = files.read_found('traffic')
    assert found and found.mistakes == 2
    assert [bool(item.arrived) for item in found.robots['robot_2']] == [True, False, True]


def test_a_share_that_the_factory_does_not_have_is_refused(own_domain: None,
                                                           tmp_path: Path) -> None:
    (tmp_path / 'factory.yaml').write_text(FACTORY)
    rclpy.init(args=['--ros-args', '-p', f'config:={tmp_path}/factory.yaml', '-p', 'first:=2',
                     '-p', 'robots:=3'])
    with pytest.raises(ValueError, match='parameter robots: is 3, must be from 0 to 2'):
        TrafficNode()
    rclpy.shutdown()
