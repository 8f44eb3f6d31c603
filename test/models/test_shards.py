# SPDX-License-Identifier: Apache-2.0
"""Weights in one file or several, found by their index."""

import json

import pytest
from safetensors.torch import save_file
import torch

from robion_ros.models import checkpoint
from robion_ros.models.folder import CheckpointError
from robion_ros.models.shards import INDEX, open_shards, WEIGHTS

A, B = 'model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'


@pytest.fixture
def folder(tmp_path):
    save_file({'x.weight': torch.ones(2, 3), 'x.bias': torch.zeros(2)}, tmp_path / A)
    save_file({'y.weight': torch.ones(1, 2).half()}, tmp_path / B)
    write_index(tmp_path, {'x.weight': A, 'x.bias': A, 'y.weight': B})
    return tmp_path


def write_index(folder, names):
    (folder / INDEX).write_text(json.dumps({'metadata': {}, 'weight_map': names}))


def test_tensors_of_all_files_are_there(folder):
    with open_shards(folder) as shards:
        assert shards.shapes == {'x.bias': (2,), 'x.weight': (2, 3), 'y.weight': (1, 2)}
        assert shards.dtypes['y.weight'] == 'F16' and shards.nbytes('y.weight') == 4
        assert shards.tensor('x.weight').tolist() == [[1, 1, 1], [1, 1, 1]]
        assert shards.place == folder / INDEX


def test_one_whole_file_counts_before_an_index(folder):
    save_file({'z': torch.ones(1)}, folder / WEIGHTS)
    with open_shards(folder) as shards:
        assert shards.keys == ('z',)


def test_a_module_is_filled_from_several_files_and_progress_is_told(folder):
    with torch.device('meta'):
        module = torch.nn.ModuleDict({'x': torch.nn.Linear(3, 2),
                                      'y': torch.nn.Linear(2, 1, bias=False)})
    told = []
    checkpoint.load(folder, module.requires_grad_(False), torch.device('cpu'),
                    progress=lambda part, left: told.append((part, left)))
    assert module['y'].weight.tolist() == [[1, 1]] and module['y'].weight.dtype == torch.float32
    parts = [part for part, _ in told]
    assert parts == sorted(parts) and parts[-1] == 1 and told[-1][1] == 0 and len(told) == 3


DAMAGES = {
    'file missing': (lambda folder: (folder / B).unlink(), f'has no {B}; it has {A}'),
    'file cut': (lambda folder: (folder / B).write_bytes(b'\0' * 20), f'{B} is damaged'),
    'not JSON': (lambda folder: (folder / INDEX).write_text('{'), 'is no index'),
    'no map': (lambda folder: (folder / INDEX).write_text('{}'), 'weight_map is missing'),
    'a list': (lambda folder: (folder / INDEX).write_text('[]'), 'weight_map is missing'),
    'elsewhere': (lambda folder: write_index(folder, {'x.weight': '../x.safetensors'}),
                  r"names '../x.safetensors', must be a file beside it"),
    'absolute': (lambda folder: write_index(folder, {'x.weight': '/etc/passwd'}),
                 'must be a file beside it'),
    'twice': (lambda folder: save_file({'x.bias': torch.zeros(2)}, folder / B),
              f'x.bias stands in .*{A} and in .*{B}'),
    'nothing': (lambda folder: [path.unlink() for path in folder.iterdir()],
                'has no model.safetensors; it has nothing'),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_is_said(folder, damage, message):
    damage(folder)
    with pytest.raises(CheckpointError, match=message), open_shards(folder):
        pass


def test_a_folder_above_the_checkpoint_names_it(folder):
    inner = folder / 'pretrained_model'
    inner.mkdir()
    save_file({'z': torch.ones(1)}, inner / WEIGHTS)
    (folder / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f'did you mean {inner}'), open_shards(folder):
        pass
