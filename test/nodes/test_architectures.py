# SPDX-License-Identifier: Apache-2.0
"""A server that holds all five architectures at once answers a robot of each, over ROS."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sensor_msgs.msg import JointState
import yaml

from robion_ros.msg import ServerStatus

pytestmark = pytest.mark.ros

GOLDEN = Path(__file__).resolve().parents[1] / 'golden'
JOINTS = [f'joint_{index}' for index in range(1, 33)]
SIX = ['x', 'y', 'z', 'roll', 'pitch', 'yaw']

RANDOM = {architecture: {'architecture': architecture, 'joints': JOINTS[:6], 'actions': SIX,
                         'cameras': {'front': 'raw', 'wrist': 'compressed'},
                         'step_duration': 0.04}
          for architecture in ('pi0_small', 'pi05_small', 'smolvla_small', 'gr00t_n1_5_small',
                               'xiaomi_robotics_0_small')}
"""The architectures at sizes for a CPU, with random weights."""


def golden(name: str, architecture: str, states: int, front: str, wrist: str,
           tokenizer: str = '') -> dict[str, Any]:
    """Describe a checkpoint whose actions have seven values."""
    return {'architecture': architecture, 'checkpoint': str(GOLDEN / name),
            'joints': JOINTS[:states], 'actions': [*SIX, 'grip'], 'step_duration': 0.04,
            'cameras': {'front': {'input': front},
                        'wrist': {'input': wrist, 'transport': 'compressed'}},
            **({'tokenizer': str(GOLDEN / tokenizer)} if tokenizer else {})}


CHECKPOINTS = {
    'pi0': golden('pi0', 'pi0', 8, 'base_0_rgb', 'left_wrist_0_rgb', 'tokenizer.json'),
    'pi05': golden('pi05', 'pi05', 8, 'front', 'wrist', 'tokenizer.json'),
    'smolvla': golden('smolvla', 'smolvla', 6, 'image', 'wrist'),
    'gr00t': golden('gr00t', 'gr00t_n1_5', 8, 'front', 'wrist', 'gr00t_tokenizer/vocab.json'),
    'xiaomi': golden('xiaomi', 'xiaomi_robotics_0', 32, 'base', 'wrist_left'),
}
"""The architectures from checkpoints as their sources save them."""


@pytest.mark.parametrize('models', [RANDOM, CHECKPOINTS], ids=['random', 'checkpoints'])
def test_each_architecture_answers_its_robot(world: Any, robot: Callable[..., Any], kit: Any,
                                             models: dict[str, Any]) -> None:
    for model in models.values():
        model |= {'prompt': 'pick it up', 'rate': 100.0, 'slo': 30.0, 'capacity': 4}
    world.config.write_text(yaml.safe_dump({
        'models': models, 'servers': {'server_0': {'models': sorted(models)}}}))
    world.server()
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.ACTIVE)
    assert list(world.statuses['server_0'].models) == sorted(models)
    robots = {name: robot(f'robot_of_{name}') for name in models}
    for name, arm in robots.items():
        joints = models[name]['joints']
        arm.observe = partial(arm.observe, joints=JointState(
            name=joints, position=[0.1] * len(joints)))
    assert world.assign(1, *(kit.place(arm.name, name) for name, arm in robots.items())).success
    world.ready(*robots.values())
    for arm in robots.values():
        arm.observe(7)
    world.until(lambda: all(arm.chunks for arm in robots.values()))
    for name, arm in robots.items():
        chunk = arm.chunks[-1]
        assert (chunk.robot, chunk.model, chunk.prompt) == (arm.name, name, 'pick it up')
        assert list(chunk.names) == models[name]['actions']
        assert chunk.horizon >= 5 and len(chunk.actions) == chunk.horizon * len(chunk.names)
        assert any(chunk.actions), 'a model gave zeros alone'
        assert chunk.observation_stamp.sec == 7 and chunk.deadline_met
        assert world.robot_status(arm.name).failed == 0
