# SPDX-License-Identifier: Apache-2.0
"""What openpi's conversion leaves beside the weights."""

import json
import shutil

import numpy as np
import pytest

from robion_ros.models.folder import CheckpointError
from robion_ros.models.openpi_folder import read_assets
from robion_ros.models.processing import IDENTITY

from .golden import edit_json, openpi_folder


@pytest.fixture
def folder(tmp_path):
    return openpi_folder(tmp_path / 'checkpoint', 'pi0')


@pytest.fixture
def stats(folder):
    return folder / 'assets' / 'robot' / 'norm_stats.json'


def test_states_and_actions_have_the_size_of_their_statistics(folder):
    assets = read_assets(folder)
    assert [assets.size(key, 32) for key in ('state', 'actions')] == [8, 7]
    assert [assets.least(key) for key in ('state', 'actions')] == [8, 7]
    assert assets.size('state', 5) == 5


def test_zeros_at_the_end_are_no_values_of_the_robot(folder, stats):
    edit_json(stats, lambda values: [entry.update({name: [*numbers, *[0.0] * 24]
              for name, numbers in entry.items()}) for entry in values['norm_stats'].values()])
    assets = read_assets(folder)
    assert (assets.least('state'), assets.size('state', 32)) == (8, 32)


def test_without_statistics_nothing_is_scaled(folder):
    shutil.rmtree(folder / 'assets')
    assets = read_assets(folder)
    assert assets.units('state', True) is IDENTITY
    assert (assets.least('state'), assets.size('state', 32)) == (1, 32)


def test_one_of_several_robots_is_chosen(folder, stats):
    shutil.copytree(stats.parent, folder / 'assets' / 'other')
    with pytest.raises(CheckpointError, match=r'several robots, other, robot: write one .* asset'):
        read_assets(folder)
    edit_json(folder / 'config.json', lambda values: values.update(asset_id='other'))
    assert read_assets(folder).size('state', 32) == 8
    edit_json(folder / 'config.json', lambda values: values.update(asset_id='none'))
    with pytest.raises(CheckpointError, match="asset_id is 'none', and there is no assets/none"):
        read_assets(folder)


def test_units_are_openpi_s(folder, stats):
    values = np.array([1.0, 2.0], np.float32)
    edit_json(stats, lambda found: found.update(norm_stats={
        key: {'mean': [0, 2], 'std': [1, 0], 'q01': [-1, 0], 'q99': [1, 0]}
        for key in ('state', 'actions')}))
    assets = read_assets(folder)
    np.testing.assert_allclose(assets.units('state', False).apply(values), [1 / (1 + 1e-6), 0])
    np.testing.assert_allclose(assets.units('state', True).apply(values),
                               [2 / (2 + 1e-6) * 2 - 1, 2 / 1e-6 * 2 - 1])
    np.testing.assert_allclose(assets.units('actions', True).invert(values),
                               [2 * (2 + 1e-6) / 2 - 1, 1.5e-6], rtol=1e-6)


DAMAGES = {
    'not JSON': (lambda path: path.write_text('{'), 'norm_stats.json'),
    'a list': (lambda path: path.write_text('[]'), 'norm_stats is missing'),
    'no actions': (lambda path: edit_json(path, lambda v: v['norm_stats'].pop('actions')),
                   'mean is missing'),
    'of two sizes': (lambda path: edit_json(path, lambda v: v['norm_stats']['state'].update(
        std=[1.0])), 'state must have lists of as many finite numbers'),
    'text': (lambda path: edit_json(path, lambda v: v['norm_stats']['state'].update(
        std=['a'] * 8)), 'norm_stats.json'),
    'a number': (lambda path: edit_json(path, lambda v: v['norm_stats']['state'].update(std=1.0)),
                 'norm_stats.json'),
    'not finite': (lambda path: path.write_text(path.read_text().replace(
        '"mean": [', '"mean": [NaN, ').replace('"std": [', '"std": [1, ')), 'finite numbers'),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_broken_statistics_are_refused(folder, stats, damage, message):
    damage(stats)
    with pytest.raises(CheckpointError, match=message):
        read_assets(folder)


def test_quantiles_that_are_needed_are_asked_for(folder, stats):
    edit_json(stats, lambda v: v['norm_stats']['state'].pop('q01'))
    with pytest.raises(CheckpointError, match=r"norm_stats.json has no 'q01' of state"):
        read_assets(folder).units('state', True)


def test_a_field_that_is_missing_is_asked_for(folder):
    (folder / 'config.json').write_text(json.dumps({}))
    assets = read_assets(folder)
    assert assets.fields.read('max_token_len', int, 48) == 48
    with pytest.raises(CheckpointError, match='action_horizon is missing: write there the action'):
        assets.fields.read('action_horizon', int)
