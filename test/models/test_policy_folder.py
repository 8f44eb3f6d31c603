# SPDX-License-Identifier: Apache-2.0
"""What a folder says of a policy is fitted to the robots of a factory file."""

import shutil

import pytest

from robion_ros.config import FieldError
from robion_ros.models.family import without_checkpoint
from robion_ros.models.key_table import count_layers
from robion_ros.models.lerobot_folder import read_policy
from robion_ros.models.policy_folder import from_lerobot, PolicyFolder
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.smolvla_config import SMALL

from .golden import ACTIONS, edit_json, FOLDER, GOLDEN, JOINTS

SIZES = SMALL


def read(folder) -> PolicyFolder:
    policy = read_policy(folder, ('smolvla_new_line_processor',))
    return from_lerobot(policy, SIZES, PolicyProcessing(SIZES), 'that of the model',
                        'resize_imgs_with_padding', 'num_steps', begin='')


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'smolvla', tmp_path / 'checkpoint')


def test_sizes_of_the_policy_are_those_of_its_configuration(folder):
    edit_json(folder / 'config.json', lambda values: values.update(
        num_steps=4, tokenizer_max_length=20, min_period=0.01, n_action_steps=3,
        action_feature_names=list(ACTIONS)))
    found = read(folder)
    config = found.config
    assert (config.cameras, config.state_size, config.action_size) == (3, 6, 7)
    assert (config.horizon, config.steps, config.prompt_tokens) == (6, 4, 20)
    assert config.shortest_period == 0.01 and config.width == SIZES.width
    assert found.processing.config == config and found.action_names == ACTIONS
    assert 'first 3 steps' in found.notes[0]


def test_a_policy_serves_the_robots_of_a_model(folder):
    model = GOLDEN['smolvla'].model(('side', 'image'))
    processing = read(folder).serve(model, 0.04)
    spec = processing.config.spec
    assert spec.cameras == 2 and spec.step_duration == 0.04 and processing.order == (1, 0)


def test_without_statistics_a_robot_may_have_fewer_values(folder):
    for name in ('policy_preprocessor.json', 'policy_postprocessor.json'):
        edit_json(folder / name, lambda values: [step['config'].update(norm_map={})
                  for step in values['steps'] if 'normalizer' in step['registry_name']])
    found = read(folder)
    assert found.fewest == (1, 1)
    model = GOLDEN['smolvla'].model(('image',), joints=JOINTS[:2], actions=ACTIONS[:3])
    config = found.serve(model, 0.04).config
    assert (config.state_size, config.action_size) == (2, 3)
    described = found.describe('', ('a problem',))
    assert (described.state_size, described.action_size) == (6, 7)
    assert 'no statistics' in described.state_units and described.problems == ('a problem',)


def test_a_model_without_a_checkpoint_has_the_sizes_of_its_robots(model_config):
    config = without_checkpoint(model_config(architecture='smolvla_small', actions=('a', 'b')),
                                SIZES, (32, 32), cameras=2)
    assert (config.cameras, config.state_size, config.action_size) == (2, 7, 2)
    assert config.step_duration == SIZES.step_duration
    with pytest.raises(FieldError, match='actions: are 33, smolvla_small takes at most 32'):
        without_checkpoint(model_config(architecture='smolvla_small', actions=tuple(
            f'a{index}' for index in range(33))), SIZES, (32, 32))


def test_layers_are_counted():
    shapes = {f'stack.{index}.weight': (1,) for index in range(12)} | {'other.20.weight': (1,)}
    assert count_layers('stack', shapes) == 12
    with pytest.raises(KeyError, match=r'none\.0'):
        count_layers('none', shapes)
