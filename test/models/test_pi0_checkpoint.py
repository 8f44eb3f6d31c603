# SPDX-License-Identifier: Apache-2.0
"""A checkpoint folder of pi0 or pi0.5 is served, or what keeps it from that is said."""

from dataclasses import replace
import shutil

import pytest
from tokenizers import Tokenizer
import torch

from robion_ros.models.pi0 import inspect
from robion_ros.models.pi0_checkpoint import read_folder
from robion_ros.models.pi0_config import PI0

from .golden import config, edit_json, FOLDER, GOLDEN, openpi_folder, weights


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'pi0', tmp_path / 'checkpoint')


@pytest.fixture
def load(folder):
    return GOLDEN['pi0'].at(folder).load




DAMAGES = {
    'other pictures': (config(image_resolution=[224, 224]),
                       r'image_resolution is \[224, 224\], the weights are for \[56, 56\]'),
    'wide state': (config(input_features={'observation.state': {'type': 'STATE', 'shape': [40]}}),
                   'a state has 40 and an action 7 values, the weights take at most 32'),
    'text for a number': (config(chunk_size='six'), "chunk_size is 'six', must be of type int"),
    'another architecture': (config(type='pi05'), 'is a pi05, the factory file says .*: pi0'),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_said(folder, load, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load()




def test_weights_of_training_are_not_asked_for(folder, load):
    weights(lambda w: [w.pop(key) for key in list(w) if key.endswith((
        'gemma_expert.lm_head.weight', 'language_model.norm.weight'))])(folder)
    load()


@pytest.mark.parametrize('drop, moved', [('lm_head', False), ('embed_tokens', True)])
def test_embeddings_are_their_own_where_both_are_there(folder, load, drop, moved):
    before = load().network.embed_tokens.weight
    weights(lambda w: w.pop(next(key for key in w if key.endswith(f'{drop}.weight')
                                 and 'gemma_expert' not in key)))(folder)
    assert torch.equal(load().network.embed_tokens.weight, before) is not moved



def test_openpi_s_padded_statistics_serve_the_robot_s_own_joints(tmp_path):
    folder = openpi_folder(tmp_path / 'openpi', 'pi0')
    edit_json(folder / 'assets' / 'robot' / 'norm_stats.json', lambda values: [
        entry.update({name: [*numbers, *[0.0] * (32 - len(numbers))]
                      for name, numbers in entry.items()})
        for entry in values['norm_stats'].values()])
    model = GOLDEN['pi0'].at(folder).load(tokenizer='')
    assert (model.spec.state_size, model.spec.action_size) == (8, 7)
    assert model.postprocess(torch.ones(6, 32), GOLDEN['pi0'].observation(0)).shape == (6, 7)


def test_openpi_s_training_has_to_be_told_its_horizon(tmp_path):
    folder = openpi_folder(tmp_path / 'openpi', 'pi05')
    (folder / 'config.json').unlink()
    with pytest.raises(ValueError, match='action_horizon is missing: write there'):
        read_folder(folder)


def test_a_word_that_the_model_does_not_know_drops_one_request(folder, load):
    tokens = Tokenizer.from_file(str(FOLDER / 'tokenizer.json'))
    tokens.add_special_tokens([*(f'<loc{index}>' for index in range(100)), '<image>'])
    tokens.save(str(folder / 'tokenizer.json'))
    model, seen = load(tokenizer=''), GOLDEN['pi0'].observation(0)
    with pytest.raises(ValueError, match=r"'look at <image>.* holds a word that the"):
        model.preprocess(replace(seen, prompt='look at <image>'))
    model.preprocess(seen)


def test_full_sizes_are_read_off_the_tensors():
    from robion_ros.models.checkpoint import named_weights
    from robion_ros.models.pi0 import Pi0Network
    from robion_ros.models.pi0_checkpoint import sized
    with torch.device('meta'):
        shapes = {name: tuple(weight.shape)
                  for name, weight in named_weights(Pi0Network(PI0)).items()}
    assert sized(replace(PI0, width=1, layers=1, heads=2, vocabulary=9), shapes) == PI0


def test_a_folder_says_how_values_are_scaled(folder):
    assert inspect(folder).state_units == 'scaled by mean and deviation'


def test_what_openpi_keeps_in_code_is_said(tmp_path):
    described = inspect(openpi_folder(tmp_path / 'openpi', 'pi05'))
    assert described.state_size == 8 and 'openpi does' in described.notes[0]
    assert described.tokenizer == str(tmp_path / 'openpi' / 'tokenizer.model')
