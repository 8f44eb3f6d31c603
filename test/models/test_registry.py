# SPDX-License-Identifier: Apache-2.0
"""Models are found by name, and refused where the factory file says otherwise."""

import sys

import pytest

from robion_ros.architectures import ARCHITECTURES
from robion_ros.config import CameraConfig
from robion_ros.models import registry
from robion_ros.models.protocol import ModelSpec

SMALL = [name for name in ARCHITECTURES if name.endswith('_small')]


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


@pytest.mark.parametrize('change, message', [
    ({'checkpoint': 'somewhere'}, 'checkpoint: {} is served with random weights alone'),
    ({'joints': tuple(f'j{index}' for index in range(33))}, 'joints: are 33, {} takes at most 32'),
    ({'actions': tuple(f'a{index}' for index in range(33))},
     'actions: are 33, {} takes at most 32'),
], ids=['checkpoint', 'joints', 'actions'])
@pytest.mark.parametrize('architecture', SMALL)
def test_what_a_small_model_cannot_be_is_refused(model_config, architecture, change, message):
    with pytest.raises(ValueError, match=message.format(architecture)):
        registry.load(model_config(architecture=architecture, **change), 'cpu')


@pytest.mark.parametrize('architecture', ['tiny', *SMALL])
def test_outline_says_how_much_the_weights_take(model_config, architecture):
    model = model_config(architecture=architecture)
    network = registry.load(model, 'cpu').network
    weights = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))
    assert registry.outline(model, 'cpu').weights == weights
    # On a GPU most are half as long.
    assert weights * 0.5 <= registry.outline(model, 'cuda:7').weights <= weights


def test_outline_depends_on_sizes_alone(model_config):
    sizes = registry.outline(model_config(), 'cpu').sizes
    assert sizes.startswith('tiny ')
    for same in ({'seed': 9}, {'step_duration': 0.1}, {'slo': 3.0}, {'prompt': 'x'}):
        assert registry.outline(model_config(**same), 'cpu').sizes == sizes
    more = {'a': CameraConfig(), 'b': CameraConfig(), 'c': CameraConfig()}
    for other in ({'cameras': more}, {'architecture': 'pi0_small'}):
        assert registry.outline(model_config(**other), 'cpu').sizes != sizes


def test_outline_of_a_checkpoint_is_that_of_random_weights_of_its_size(model_config, tmp_path):
    registry.load(model_config(), 'cpu').save(tmp_path)
    assert (registry.outline(model_config(checkpoint=str(tmp_path)), 'cpu')
            == registry.outline(model_config(seed=5), 'cpu'))


def test_full_sizes_are_told_without_memory_for_them(model_config):
    found = registry.outline(model_config(architecture='pi0'), 'cuda')
    assert 6.3e9 < found.weights < 6.7e9
