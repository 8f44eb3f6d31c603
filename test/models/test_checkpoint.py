# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: what is written is read again, and whatever is broken is said to be."""

import json
import math
import pickle
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file
import torch

from robion_ros.models import checkpoint, registry
from robion_ros.models.checkpoint import CheckpointError
from robion_ros.models.key_table import KeyTable
from robion_ros.models.layers import Attention, randomise

from .golden import edit_weights


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / 'checkpoint')


@pytest.fixture
def load(folder, model_config):
    return lambda: registry.load(model_config(checkpoint=str(folder)), 'cpu')


def edit_config(folder, **changes):
    path = folder / 'config.json'
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


def test_a_loaded_model_answers_as_the_saved_one(tiny, load, observe, answer):
    loaded = load()
    assert loaded.config == tiny.config
    np.testing.assert_array_equal(answer(loaded, observe()), answer(tiny, observe()))


def test_the_parts_of_fused_weights_are_stored_apart(saved):
    names = load_file(saved / 'model.safetensors').keys()
    assert {f'expert.0.self_attn.{part}_proj.weight' for part in 'qkvo'} < names
    assert {f'expert.0.mlp.{part}_proj.weight' for part in ('gate', 'up', 'down')} < names
    assert not [name for name in names if 'qkv' in name or 'gate_up' in name]


def test_weights_of_another_precision_are_converted(folder, load, tiny):
    edit_weights(folder, lambda weights: weights.update(
        {name: weight.bfloat16() for name, weight in weights.items()}))
    for name, weight in checkpoint.named_weights(load().network).items():
        before = checkpoint.named_weights(tiny.network)[name]
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, before.bfloat16().float(), atol=0, rtol=0)



def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


CONFIGS = {
    'unknown key': ({'stepz': 3}, "unknown key 'stepz'; did you mean 'steps'"),
    'missing key': ({'cameras': ...}, 'cameras missing'),
    'text for a number': ({'steps': 'ten'}, "steps is 'ten', must be of type int"),
    'boolean for a number': ({'steps': True}, 'steps is True, must be of type int'),
    'fraction': ({'steps': 10.0}, 'steps is 10.0, must be of type int'),
    'out of range': ({'steps': 0}, 'steps: is 0'),
    'number for a list': ({'state_std': 1.0}, 'state_std is 1.0, must be a list'),
    'null in a list': ({'state_std': [1.0] * 6 + [None]}, r'state_std\[6\] is None'),
    'not a number': ({'state_std': [1.0] * 6 + [math.nan]}, r'state_std\[6\]: is nan'),
    'other architecture': ({'architecture': 'pi0'}, "architecture is 'pi0', .* as 'tiny'"),
    'no architecture': ({'architecture': ...}, "architecture is None, .* as 'tiny'"),
}


@pytest.mark.parametrize('changes, message', CONFIGS.values(), ids=CONFIGS)
def test_a_wrong_configuration_says_what_is_wrong(folder, load, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=f'config.json: {message}'):
        load()


FILES = {
    'cut JSON': (write('config.json', b'{"cameras": 2,'), 'config.json is not JSON'),
    'not UTF-8': (write('config.json', b'\xff\xfe{}'), 'config.json is not JSON'),
    'JSON list': (write('config.json', b'[]'), 'config.json holds a list'),
    'no configuration': (lambda folder: (folder / 'config.json').unlink(),
                         'has no config.json; it has model.safetensors'),
    'no weights': (lambda folder: (folder / 'model.safetensors').unlink(),
                   'has no model.safetensors; it has config.json'),
    'empty weights': (write('model.safetensors', b''), 'model.safetensors is damaged'),
    'noise for weights': (write('model.safetensors', b'\xff' * 100), 'is damaged'),
    'cut weights': (lambda folder: write('model.safetensors', (
        folder / 'model.safetensors').read_bytes()[:-1])(folder), 'is damaged'),
    'other sizes': (lambda folder: edit_config(folder, width=64),
                    r'embed_tokens.weight has shape \[258, 128\], the model takes \[258, 64\]'),
}


@pytest.mark.parametrize('damage, message', FILES.values(), ids=FILES)
def test_a_broken_checkpoint_says_what_is_broken(folder, load, damage, message):
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load()


class Trap:
    def __reduce__(self):
        return exec, ('raise SystemExit("a pickle was read")',)


@pytest.mark.parametrize('name, message', [
    ('model.safetensors', 'is damaged'),
    ('pytorch_model.bin', r'has no model.safetensors; it has config.json, pytorch_model.bin'),
])
def test_pickles_are_never_read(folder, load, name, message):
    (folder / 'model.safetensors').unlink()
    (folder / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match=message):
        load()


def test_names_of_other_formats_are_translated(tmp_path):
    layer = Attention(8, 2, 1, 4).requires_grad_(False)
    randomise(layer, 0)
    stored = {f'model.{name}': weight for name, weight in checkpoint.named_weights(layer).items()}
    checkpoint.save(tmp_path, {}, stored | {'lm_head.weight': torch.zeros(3)})
    with torch.device('meta'):
        loaded = Attention(8, 2, 1, 4).requires_grad_(False)
    checkpoint.load(tmp_path, loaded, torch.device('cpu'),
                    KeyTable(('model.',), unused=('lm_head',)))
    torch.testing.assert_close(loaded.qkv.weight, layer.qkv.weight, atol=0, rtol=0)
    torch.testing.assert_close(loaded.o_proj.weight, layer.o_proj.weight, atol=0, rtol=0)


def test_two_tensors_for_one_weight_are_refused(tmp_path):
    checkpoint.save(tmp_path, {}, {'a.weight': torch.zeros(2, 2), 'b.weight': torch.zeros(2, 2)})
    module = torch.nn.ModuleDict({'x': torch.nn.Linear(2, 2, bias=False)})
    with pytest.raises(CheckpointError, match=r'a.weight and b.weight are both x.weight'):
        checkpoint.load(tmp_path, module, torch.device('cpu'),
                        KeyTable(renames={'[ab]': 'x'}))


def test_no_memory_is_taken_for_a_checkpoint_that_does_not_fit(tmp_path):
    checkpoint.save(tmp_path, {}, {f'layers.{index}.weight': torch.zeros(1)
                                   for index in range(20)})
    with torch.device('meta'):
        module = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(20))
    with pytest.raises(CheckpointError, match=r'and more$') as caught:
        checkpoint.load(tmp_path, module, torch.device('cpu'))
    assert len(str(caught.value).splitlines()) == checkpoint.SHOWN + 2
    assert all(weight.is_meta for weight in module.parameters())
