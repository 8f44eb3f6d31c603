# SPDX-License-Identifier: Apache-2.0
"""Models are found by name, and refused where the factory file says otherwise."""

import sys

import pytest

from robion_ros.config import CameraConfig
from robion_ros.models import registry
from robion_ros.models.protocol import ModelSpec


def test_random_weights_follow_the_factory_file(model_config):
    config = model_config(cameras={'one': CameraConfig()}, joints=('a', 'b'), actions=('x',))
    assert registry.load(config, 'cpu').spec == ModelSpec('tiny', 1, 2, 10, 1, 0.05)


def test_robots_of_many_joints_are_served(model_config):
    joints = tuple(f'joint_{index}' for index in range(40))
    assert registry.load(model_config(joints=joints), 'cpu').spec.action_size == 40


@pytest.mark.parametrize('name, message', [
    ('tini', "architecture: 'tini' is not a valid architecture; did you mean 'tiny'"),
    ('gpt', "architecture: 'gpt' .* must be one of tiny"),
])
def test_an_unknown_architecture_is_refused(model_config, name, message):
    with pytest.raises(ValueError, match=message):
        registry.load(model_config(architecture=name), 'cpu')


def test_an_architecture_that_cannot_be_imported_harms_no_other(model_config, tmp_path,
                                                                monkeypatch):
    (tmp_path / 'broken_architecture.py').write_text('import no_such_dependency\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.ARCHITECTURES, 'broken', 'broken_architecture')
    assert registry.load(model_config(), 'cpu').spec.architecture == 'tiny'
    assert 'broken_architecture' not in sys.modules
    with pytest.raises(ImportError, match=r"'broken' cannot be imported.*'no_such_dependency'"):
        registry.load(model_config(architecture='broken'), 'cpu')


@pytest.mark.parametrize('change, message', [
    ({'cameras': {'front': CameraConfig()}}, 'cameras: .* trained with 2, .* names 1'),
    ({'joints': ('a', 'b')}, 'joints: .* trained with 7, .* names 2'),
    ({'actions': ('a', 'b', 'c')}, 'actions: .* trained with 7, .* names 3'),
], ids=['cameras', 'joints', 'actions'])
def test_a_checkpoint_of_other_robots_is_refused(tiny, model_config, tmp_path, change, message):
    tiny.save(tmp_path)
    (tmp_path / 'model.safetensors').unlink()  # said before the weights are read
    with pytest.raises(ValueError, match=message):
        registry.load(model_config(checkpoint=str(tmp_path), **change), 'cpu')
