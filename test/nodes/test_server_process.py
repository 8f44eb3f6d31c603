# SPDX-License-Identifier: Apache-2.0
"""A server as a process: how it starts, ends, and keeps up with sixteen robots."""

from collections import Counter
from collections.abc import Callable, Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
from typing import Any

import pytest

from robion_ros.processes import environment

pytestmark = pytest.mark.ros

Launch = Callable[..., 'subprocess.Popen[str]']


@pytest.fixture
def launch(own_domain: None, write_factory: Callable[..., Path]
           ) -> Iterator[Callable[..., 'subprocess.Popen[str]']]:
    """Start a server as a process of its own."""
    processes: list[subprocess.Popen[str]] = []

    def launch(*words: str, config: Path | None = None) -> 'subprocess.Popen[str]':
        path = config or write_factory('tiny')
        process = subprocess.Popen(
            [sys.executable, '-P', '-m', 'robion_ros.nodes', 'server', '--ros-args', '-r',
             '__node:=server_0', '-p', f'config:={path}', *words], stderr=subprocess.PIPE,
            text=True, env=os.environ | {'PYTHONUNBUFFERED': '1'})
        processes.append(process)
        return process
    yield launch
    for process in processes:
        process.kill()
        process.communicate()


def read_until(process: 'subprocess.Popen[str]', text: str) -> None:
    assert process.stderr is not None
    lines = []
    while text not in (lines[-1] if lines else ''):
        lines.append(process.stderr.readline())
        assert lines[-1], ''.join(lines)


@pytest.mark.parametrize(('moment', 'signals'), [
    ('arm: loaded', [signal.SIGINT]),
    ('engine ready', [signal.SIGINT, signal.SIGINT]),
    ('engine ready', [signal.SIGTERM]),
], ids=['SIGINT while it loads', 'SIGINT twice', 'SIGTERM'])
def test_a_signal_ends_it_without_a_trace(launch: Launch, moment: str,
                                          signals: list[signal.Signals]) -> None:
    process = launch()
    read_until(process, moment)
    for number in signals:
        process.send_signal(number)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 0, rest
    assert 'Traceback' not in rest
    assert 'ERROR' not in rest


def test_the_same_server_launched_twice_ends_the_second(launch: Launch, world: Any,
                                                        robot: Any) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    second = launch()
    _, err = second.communicate(timeout=30)
    assert second.returncode == 2, err
    assert "server 'server_0' runs already" in err
    assert 'Traceback' not in err
    arm.observe()
    world.until(lambda: arm.chunks)


ENDS = 'from robion_ros.engine.engine import Engine\nEngine._run = lambda self: None'
HANGS = """
from threading import Event
from robion_ros.engine.device import CpuStage
from robion_ros.engine.engine import Engine
def hang(engine):
    engine.pace.go_on()
    CpuStage('hanging').launch(Event().wait).wait()
Engine._run = hang
"""
EXECUTOR_HANGS = """
from threading import Event
from robion_ros.nodes.server import ServerNode
ServerNode._on_status_timer = lambda node: (
    Event().wait() if node._state == 2 else node._publish_status())
"""
CANNOT_BEAT = 'from robion_ros.nodes.lease import Lease\nLease.beat = lambda lease: 1 // 0'


@pytest.mark.parametrize(('patch', 'hang_time', 'said', 'signals'), [
    (ENDS, 0.0, 'the engine has stopped by a fault', []),
    (HANGS, 1.0, 'the engine hangs, and its device with it', []),
    (HANGS, 3.0, 'the engine hangs, and keeps what it has', [signal.SIGINT]),
    (EXECUTOR_HANGS, 1.0, 'the executor hangs: no callback has run in', []),
    (CANNOT_BEAT, 0.0, 'the heart has stopped by a fault: ZeroDivisionError', []),
], ids=['engine ends', 'engine hangs', 'engine hangs at the end', 'executor hangs', 'heart stops'])
def test_a_process_that_can_serve_no_more_says_why_and_ends_with_1(
        own_domain: None, write_factory: Any, patch: str, hang_time: float, said: str,
        signals: list[signal.Signals]) -> None:
    script = (f'{patch}\nimport sys\nfrom robion_ros.nodes.__main__ import main\n'
              "sys.exit(main('server'))")
    process = subprocess.Popen(
        [sys.executable, '-P', '-c', script, '--ros-args', '-r', '__node:=server_0', '-p',
         f'config:={write_factory("tiny")}', '-p', f'hang_time:={hang_time}'],
        stderr=subprocess.PIPE, text=True)
    try:
        if signals:
            read_until(process, 'engine ready')
        for number in signals:
            process.send_signal(number)
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, rest
    assert said in rest
    assert 'Timeout' not in rest, 'nothing held it up'


def test_the_seconds_in_which_it_starts_are_no_alarm(launch: Launch, world: Any) -> None:
    process = launch()
    name = 'robion: server_0'
    world.until(lambda: name in world.diagnostics
                and world.diagnostics[name].message == 'serving')
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert 'engine ready' in err
    assert 'callbacks were' not in err


@pytest.mark.parametrize(('word', 'message'), [
    ('server:=server_9', "server 'server_9' is not in"),
    ('config:=nowhere.yaml', 'nowhere.yaml: there is no such file'),
    ('status_rate:=0', 'parameter status_rate: is 0.0, must be from 0.1 to 100'),
])
def test_a_wrong_parameter_ends_it_with_2(launch: Launch, tmp_path: Path, word: str,
                                          message: str) -> None:
    process = launch('-p', word) if not word.startswith('config') else launch(
        config=tmp_path / 'nowhere.yaml')
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2, err
    assert message in err
    assert 'Traceback' not in err


SWARM = """
from array import array
from contextlib import suppress
import sys
from threading import Thread
from time import monotonic, sleep
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from sensor_msgs.msg import Image, JointState
from robion_ros.msg import ActionChunk
rclpy.init()
node = rclpy.create_node('swarm')
names = [f'r{index}' for index in range(16)]
cameras = [node.create_publisher(Image, f'{name}/{camera}/image_raw', 1)
           for name in names for camera in ('front', 'wrist')]
joints = [node.create_publisher(JointState, f'{name}/joint_states', 1) for name in names]
for name in names:
    node.create_subscription(ActionChunk, f'{name}/action_chunk',
                             lambda chunk: print(chunk.robot, flush=True), 1)
executor = SingleThreadedExecutor()
def spin():
    with suppress(ExternalShutdownException):
        executor.spin()
executor.add_node(node)
thread = Thread(target=spin)
thread.start()
message = Image(encoding='rgb8', width=224, height=224, step=672)
message.data = array('B', bytes(224 * 224 * 3))
start, sent = monotonic(), 0
while monotonic() - start < float(sys.argv[1]):
    for publisher in joints:
        publisher.publish(JointState(name=['a', 'b'], position=[0.0, 0.0]))
    for publisher in cameras:
        publisher.publish(message)
        sent += 1
    sleep(max(0.0, start + sent / len(cameras) / 30 - monotonic()))
sleep(0.5)
rclpy.shutdown()
thread.join()
"""


def test_sixteen_robots_with_two_cameras_at_30_hz(world: Any, launch: Launch,
                                                  write_factory: Any, kit: Any) -> None:
    path = write_factory('tiny', ('wrist: compressed', 'wrist: raw'), ('rate: 100', 'rate: 2'))
    process = launch(config=path)
    world.watch('server_0')
    read_until(process, 'engine ready')
    names = [f'r{index}' for index in range(16)]
    assert world.assign(1, *names).success
    swarm = subprocess.run([sys.executable, '-P', '-c', SWARM, '5'], stdout=subprocess.PIPE,
                           text=True, timeout=30, env=os.environ | environment())
    assert swarm.returncode == 0
    answered = Counter(swarm.stdout.split())
    world.until(lambda: all(world.ended(name) for name in names))
    assert sorted(answered) == sorted(names)
    for name in names:
        status = world.robot_status(name)
        assert (status.refused, status.failed) == (0, 0)
        assert status.answered >= answered[name] > 1
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
