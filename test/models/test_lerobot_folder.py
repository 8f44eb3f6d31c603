# SPDX-License-Identifier: Apache-2.0
"""What lerobot saves beside the weights is read as it means it, or refused."""

import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from robion_ros.models.folder import CheckpointError
from robion_ros.models.lerobot_folder import ACTION, make_units, read_policy, STATE
from robion_ros.models.pi0_checkpoint import OWN_STEPS
from robion_ros.models.processing import IDENTITY

from .golden import edit_json, FOLDER

BEFORE, AFTER = 'policy_preprocessor.json', 'policy_postprocessor.json'


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'pi05', tmp_path / 'checkpoint')


def read(folder):
    return read_policy(folder, OWN_STEPS)


def change_step(folder, file, name, change):
    edit_json(folder / file, lambda values: change(next(
        step for step in values['steps'] if step['registry_name'] == name)))


def test_cameras_and_sizes_are_those_of_the_robots(folder):
    policy = read(folder)
    assert policy.cameras == ('front', 'wrist')  # Without the empty one.
    assert (policy.size(STATE), policy.size(ACTION)) == (8, 7)
    assert policy.relative(7).tolist() == [1, 1, 1, 1, 1, 1, 0]


def test_other_names_of_cameras_are_known(folder):
    change_step(folder, BEFORE, 'rename_observations_processor', lambda step: step.update(
        config={'rename_map': {'observation.images.top': 'observation.images.front'}}))
    assert read(folder).renamed == {'top': 'front'}


def test_a_base_model_scales_nothing(folder):
    change_step(folder, BEFORE, 'normalizer_processor', lambda step: step['config'].update(
        features={}))
    (folder / AFTER).write_text('{"name": "policy_postprocessor", "steps": []}')
    policy = read(folder)
    assert policy.units(STATE) is IDENTITY and policy.units(ACTION) is IDENTITY
    assert policy.relative(7) is None


@pytest.mark.parametrize('change, mask', [
    ({'exclude_joints': []}, [1] * 7),
    ({'action_names': None}, [1] * 7),
    ({'exclude_joints': ['Roll', 'Z']}, [1, 1, 0, 0, 1, 1, 1]),
    ({'exclude_joints': ['x'], 'action_names': ['x']}, [0, 1, 1, 1, 1, 1, 1]),
], ids=['none kept', 'no names', 'in capitals', 'few names'])
def test_actions_are_relative_but_for_those_that_are_named(folder, change, mask):
    change_step(folder, BEFORE, 'relative_actions_processor',
                lambda step: step['config'].update(change))
    assert read(folder).relative(7).tolist() == mask


FOUND = {'mean': [1, 5], 'std': [2, 0], 'min': [-1, 3], 'max': [3, 3], 'q01': [0, 0],
         'q99': [4, 0], 'q10': [1, 1], 'q90': [2, 3]}
STATISTICS = {name: np.array(values, np.float32) for name, values in FOUND.items()}


@pytest.mark.parametrize('mode, scaled', [
    ('MEAN_STD', [1, 0]), ('MIN_MAX', [1, -1]), ('QUANTILES', [0.5, -1]),
    ('QUANTILE10', [3, -1]),
])
def test_units_of_each_mode(mode, scaled):
    values = np.array([3, {'MEAN_STD': 5, 'MIN_MAX': 3, 'QUANTILES': 0, 'QUANTILE10': 1}[mode]],
                      np.float32)
    units = make_units(mode, STATISTICS, 1e-8, 2)
    np.testing.assert_allclose(units.apply(values), scaled)
    np.testing.assert_allclose(units.invert(units.apply(values)), values)
    # Nothing is clipped, and what never moved does not become infinite.
    assert np.isfinite(units.apply(values + 1e3)).all() and units.apply(values + 1e3).max() > 100
    assert units.cut(1).apply(values[:1]).tolist() == units.apply(values)[:1].tolist()


def add_step(folder):
    edit_json(folder / BEFORE, lambda values: values['steps'].append(
        {'registry_name': 'crop_processor', 'config': {}}))


def statistics(change):
    def damage(folder):
        path, = folder.glob('policy_preprocessor_step_*.safetensors')
        values = load_file(path)
        change(values)
        save_file(values, path)
    return damage


DAMAGES = {
    'no steps before': (lambda folder: (folder / BEFORE).unlink(),
                        f'no {BEFORE}; .*; lerobot writes it since 0.4; .*migrate_policy'),
    'no steps after': (lambda folder: (folder / AFTER).unlink(), f'no {AFTER}'),
    'not JSON': (lambda folder: (folder / AFTER).write_text('{'), f'{AFTER} is not JSON'),
    'steps are no list': (lambda folder: (folder / AFTER).write_text('{"steps": {}}'),
                          'steps is {}, must be of type list'),
    'step is no object': (lambda folder: (folder / AFTER).write_text('{"steps": [1]}'), AFTER),
    'unknown step': (add_step, "the step 'crop_processor' before or after .* is not known"),
    'state file missing': (lambda folder: next(folder.glob('policy_pre*.safetensors')).unlink(),
                           'has no policy_preprocessor_step_3'),
    'state file cut': (lambda folder: next(folder.glob('policy_pre*.safetensors')).write_bytes(
        b'1234567890'), BEFORE),
    'state file elsewhere': (lambda folder: change_step(
        folder, BEFORE, 'normalizer_processor', lambda step: step.update(state_file='../x')),
        "state_file is '../x', must be a file beside it"),
    'pictures scaled': (lambda folder: change_step(
        folder, BEFORE, 'normalizer_processor',
        lambda step: step['config']['norm_map'].update(VISUAL='MEAN_STD')),
        'pictures are scaled by MEAN_STD'),
    'half precision': (lambda folder: change_step(
        folder, BEFORE, 'device_processor',
        lambda step: step['config'].update(float_dtype='bfloat16')),
        'rounds inputs to bfloat16'),
    'unknown mode': (lambda folder: change_step(
        folder, BEFORE, 'normalizer_processor',
        lambda step: step['config']['norm_map'].update(STATE='TANH')), 'TANH is not known'),
    'no quantiles': (statistics(lambda values: values.pop('observation.state.q01')),
                     'QUANTILES needs q01, the statistics have'),
    'another robot': (statistics(lambda values: values.update(
        {'observation.state.q01': np.zeros(3, np.float32)})), r'q01 has shape \[3\], must be 8'),
    'not a number': (statistics(lambda values: values.update(
        {'observation.state.q01': np.full(8, np.nan, np.float32)})), 'q01 .*finite'),
    'no shape': (lambda folder: edit_json(folder / 'config.json', lambda values: values[
        'input_features']['observation.state'].update(shape=None)),
        'input_features.observation.state.shape is None'),
    'no features': (lambda folder: edit_json(
        folder / 'config.json', lambda values: values.pop('output_features')),
        'output_features is missing'),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_is_said(folder, damage, message):
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        policy = read(folder)
        policy.units(STATE)
        policy.units(ACTION)
