# SPDX-License-Identifier: Apache-2.0
"""Which architecture a folder is of."""

import json

import pytest
from safetensors.torch import save_file
import torch

from robion_ros.architectures import ARCHITECTURES
from robion_ros.models.folder import CheckpointError
from robion_ros.models.layouts import check_architecture, detect, TRAITS

from .golden import FOLDER, lerobot_folder, openpi_folder


def test_every_architecture_of_the_table_is_one():
    assert {trait.architecture for trait in TRAITS} <= set(ARCHITECTURES)


@pytest.mark.parametrize('kind', ['pi0', 'pi05'])
def test_pi0_is_told_in_both_layouts(kind, tmp_path):
    trait = detect(FOLDER / kind)
    assert (trait.architecture, trait.layout) == (kind, 'lerobot')
    trait = detect(openpi_folder(tmp_path / 'openpi', kind))
    assert (trait.architecture, trait.layout) == (kind, 'openpi')


def test_gr00t_is_told_in_both_layouts(tmp_path):
    for layout, folder in (('lerobot', lerobot_folder(tmp_path / 'lerobot')),
                           ('Isaac-GR00T', FOLDER / 'gr00t')):
        trait = detect(folder)
        assert (trait.architecture, trait.layout) == ('gr00t_n1_5', layout)


def test_openpi_s_training_writes_no_configuration(tmp_path):
    folder = openpi_folder(tmp_path / 'openpi', 'pi05')
    (folder / 'config.json').unlink()
    assert detect(folder).layout == 'openpi'


def test_smolvla_is_told():
    trait = detect(FOLDER / 'smolvla')
    assert (trait.architecture, trait.layout) == ('smolvla', 'lerobot')


def test_xiaomi_robotics_is_told():
    trait = detect(FOLDER / 'xiaomi')
    assert (trait.architecture, trait.layout) == ('xiaomi_robotics_0', 'mibot')


def test_tiny_is_told(tiny, tmp_path):
    tiny.save(tmp_path)
    assert detect(tmp_path).architecture == 'tiny'


@pytest.mark.parametrize('fields, message', [
    ({'type': 'act'}, "type 'act' is of no architecture that is served; must be one of"),
    ({'type': 'pi'}, "type 'pi' .* did you mean 'pi0'"),
    ({'type': None}, 'type None is of no'),
    ({'architectures': ['X']}, 'has none of architecture, model_type, type, and there is none of '
     'the tensors'),
])
def test_another_model_is_named(tmp_path, fields, message):
    (tmp_path / 'config.json').write_text(json.dumps(fields))
    save_file({'x': torch.ones(1)}, tmp_path / 'model.safetensors')
    with pytest.raises(CheckpointError, match=message):
        detect(tmp_path)


def test_another_architecture_than_the_factory_s_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r'is a pi05, the factory file says .*: pi0'):
        check_architecture(detect(FOLDER / 'pi05'), 'pi0', FOLDER / 'pi05')
