# SPDX-License-Identifier: Apache-2.0
"""From a robot's topics to its chunks, over real DDS: what is answered, what not and why."""

from collections.abc import Callable
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage

from robion_ros.nodes import qos, serving

pytestmark = pytest.mark.ros

Make = Callable[..., Any]


def test_a_chunk_answers_its_observation(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    assert world.assign(1, 'r').success
    world.ready(arm)
    arm.trajectories.clear()
    arm.observe(seconds=1234)
    world.until(lambda: arm.chunks and arm.trajectories)
    chunk, = arm.chunks
    assert (chunk.robot, chunk.model, chunk.prompt) == ('r', 'arm', 'pick')
    assert chunk.observation_stamp.sec == 1234
    assert chunk.header.stamp.sec > 1e9
    assert (list(chunk.names), list(chunk.units), chunk.horizon) == (['a', 'b'], ['rad'] * 2, 3)
    assert list(chunk.actions) == [1, 2] * 3, "in the order of the model's joints"
    assert seconds(chunk.step_duration) == 0.05
    assert seconds(chunk.deadline) == 5.0
    assert chunk.deadline_met
    assert chunk.batch == 1
    stages = seconds(chunk.vlm_time) + seconds(chunk.adit_time)
    assert 0 < stages <= seconds(chunk.engine_time) <= seconds(chunk.server_time) < 5.0
    trajectory, = arm.trajectories
    assert list(trajectory.joint_names) == ['a', 'b']
    assert seconds(trajectory.header.stamp) == 0
    assert [list(point.positions) for point in trajectory.points] == [[1, 2]] * 3
    assert [seconds(point.time_from_start) for point in trajectory.points] == [0.05, 0.1, 0.15]


def test_a_chunk_after_the_deadline_says_so(world: Any, robot: Make, write_factory: Make,
                                            fakes: Any) -> None:
    write_factory('fake', ('slo: 5.0', 'slo: 0.05'))
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    late = world.robot_status().late
    fakes['pick'][0].gate.clear()
    arm.observe()
    sleep(0.1)
    fakes['pick'][0].gate.set()
    world.until(lambda: arm.chunks)
    assert not arm.chunks[0].deadline_met
    world.until(lambda: world.robot_status().late == late + 1)


@pytest.mark.parametrize('seconds', [0, 1_000, 2_000_000_000], ids=['0', 'past', 'future'])
def test_stamps_do_not_matter(world: Any, robot: Make, seconds: int) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    arm.observe(seconds)
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].observation_stamp.sec == seconds
    assert arm.chunks[0].deadline_met


@pytest.mark.parametrize('reliability', [
    ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT], ids=lambda kind: kind.name)
@pytest.mark.parametrize('first', ['robot', 'server'])
def test_cameras_of_both_reliabilities_are_heard(world: Any, robot: Make, reliability: Any,
                                                 first: str) -> None:
    profile = QoSProfile(depth=5, reliability=reliability)
    arm = robot(front=profile, wrist=profile) if first == 'robot' else None
    world.server()
    world.assign(1, 'r')
    arm = arm or robot(front=profile, wrist=profile)
    world.ready(arm)
    arm.observe()
    world.until(lambda: arm.chunks)


@pytest.mark.parametrize(('profile', 'when'), [
    (qos.LATCHED_QOS, 'before'), (qos.LATCHED_QOS, 'after'), (qos.VOLATILE_QOS, 'after')],
    ids=['latched before', 'latched after', 'volatile after'])
def test_prompts_are_heard(world: Any, robot: Make, profile: Any, when: str) -> None:
    arm = robot(prompt=profile)
    if when == 'before':
        arm.say(' stäck 积木 🧱 ')
    world.server()
    world.assign(1, 'r')
    world.ready(arm)
    if when == 'after':
        arm.say(' stäck 积木 🧱 ')
    world.until(lambda: world.robot_status().prompt == 'stäck 积木 🧱')
    assert world.robot_status().prompt_stamp > 0
    arm.observe()
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].prompt == 'stäck 积木 🧱'


def test_a_bad_prompt_is_counted_once_and_the_one_before_stays(world: Any, robot: Make) -> None:
    world.server()
    arm = robot(prompt=qos.LATCHED_QOS)
    world.assign(1, 'r')
    world.ready(arm)
    arm.say(' \n')
    world.until(lambda: world.robot_status().refused)
    arm.observe()
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].prompt == 'pick'
    assert world.robot_status().refused == 1, 'both subscriptions hear a latched prompt'
    assert 'empty instruction' in world.robot_status().last_error


def test_a_listener_that_comes_late_gets_the_next_chunk(world: Any, robot: Make) -> None:
    world.server()
    arm = robot(listens=False)
    world.assign(1, 'r')
    world.heard(arm)
    arm.observe()
    world.until(lambda: world.robot_status().answered)
    assert not world.robot_status().ready, 'nobody listens'
    arm.listen()
    world.until(lambda: world.robot_status().ready)
    arm.observe()
    world.until(lambda: any(chunk.request == world.robot_status().last_request
                            for chunk in arm.chunks))


BAD = {
    'depth image': {'front': {'encoding': '16UC1', 'step': 16, 'data': bytes(128)}},
    'short image': {'front': {'data': bytes(100)}},
    'no image': {'front': {'width': 0, 'height': 0, 'step': 0, 'data': b''}},
    'no bytes': {'wrist': {'data': b''}},
    'no picture': {'wrist': {'data': b'hello world, this is no picture'}},
    'compressed depth': {'wrist': {'format': '16UC1; compressedDepth png'}},
    'missing joint': {'joints': {'name': ['a'], 'position': [1.0]}},
    'nan joint': {'joints': {'position': [float('nan'), 1.0]}},
    'uneven joints': {'joints': {'position': [1.0]}},
}


@pytest.mark.parametrize('kind', BAD)
def test_a_bad_message_is_counted_and_disturbs_nobody(world: Any, robot: Make,
                                                      kit: SimpleNamespace, kind: str) -> None:
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    makers = {'front': kit.image, 'wrist': kit.picture, 'joints': kit.joints}
    arm.observe(**{topic: makers[topic](**fields) for topic, fields in BAD[kind].items()})
    other.observe()
    topic = next(iter(BAD[kind])).replace('joints', 'joint_states')
    world.until(lambda: world.robot_status().refused == 1)
    assert world.robot_status().last_error.startswith(f'{topic}: ')
    world.until(lambda: other.chunks)
    arm.observe()
    world.until(lambda: arm.chunks)
    name = 'robion: server_0: r'
    world.until(lambda: name in world.diagnostics and 'refused' in values(
        world.diagnostics[name]) and values(world.diagnostics[name])['refused'] == '1')
    assert values(world.diagnostics[name])['last error'] == world.robot_status().last_error
    assert world.robot_status('s').refused == 0


def test_a_picture_damaged_inside_fails_its_request(world: Any, robot: Make,
                                                    kit: SimpleNamespace) -> None:
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    good = bytes(kit.picture().data)
    arm.observe(wrist=CompressedImage(format='png', data=good[:-30] + good[-12:]))
    other.observe()
    world.until(lambda: world.robot_status().failed == 1)
    assert 'wrist: ' in world.robot_status().last_error
    world.until(lambda: other.chunks)
    assert not arm.chunks
    arm.observe()
    world.until(lambda: arm.chunks)


def test_a_decoder_that_raises_anything_fails_its_request(
        world: Any, robot: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    with monkeypatch.context() as patch:
        patch.setattr(serving, 'to_rgb', lambda message, order: 1 // 0)
        arm.observe()
        world.until(lambda: world.robot_status().failed == 1)
    assert 'ZeroDivisionError' in world.robot_status().last_error
    arm.observe()
    world.until(lambda: arm.chunks)


@pytest.mark.parametrize(('prompt', 'error'), [
    ('nan', 'not finite'), ('raise', 'out of ideas'), ('shape', 'actions of shape [3, 5]'),
    ('exit', 'SystemExit')])
def test_a_wrong_answer_of_the_model_is_not_published(world: Any, robot: Make, prompt: str,
                                                      error: str) -> None:
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    arm.say(prompt)
    world.until(lambda: world.robot_status().prompt == prompt)
    arm.observe()
    other.observe()
    world.until(lambda: world.robot_status().failed == 1)
    assert error in world.robot_status().last_error
    world.until(lambda: other.chunks)
    arm.say('pick')
    world.until(lambda: world.robot_status().prompt == 'pick')
    arm.observe()
    world.until(lambda: arm.chunks)
    assert [chunk.prompt for chunk in arm.chunks] == ['pick']
    world.until(world.ended)
    assert [item.robot for item in world.assign(2).released] == ['r', 's']
    world.until(lambda: not world.statuses['server_0'].robots)


def seconds(duration: Any) -> float:
    return float(duration.sec + duration.nanosec / 1e9)


def values(status: Any) -> dict[str, str]:
    return {item.key: item.value for item in status.values}
