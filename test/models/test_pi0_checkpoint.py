# SPDX-License-Identifier: Apache-2.0
"""A checkpoint folder of pi0 or pi0.5 is served, or what keeps it from that is said."""

from dataclasses import replace
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
import torch

from robion_ros.models import registry
from robion_ros.models.pi0 import inspect
from robion_ros.models.pi0_checkpoint import read_folder
from robion_ros.models.pi0_config import PI0

from .golden import ACTIONS, CAMERAS, edit_json, FOLDER, Golden, JOINTS, model_of, openpi_folder

NORM = 'model.paligemma_with_expert.gemma_expert.model.layers.1.input_layernorm.weight'
PROJECTION = 'model.action_in_proj.weight'


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'pi0', tmp_path / 'checkpoint')


@pytest.fixture
def load(folder):
    return lambda cameras=CAMERAS['pi0'], **changes: registry.load(
        model_of('pi0', cameras, checkpoint=str(folder), **changes), 'cpu')


def weights(change):
    def damage(folder):
        path = folder / 'model.safetensors'
        found = load_file(path)
        change(found)
        save_file(found, path)
    return damage


def config(**changes):
    return lambda folder: edit_json(folder / 'config.json', lambda values: values.update(changes))


DAMAGES = {
    'missing': (weights(lambda w: w.pop(NORM)),
                r'expert.1.input_layernorm.weight \[24\] is missing; nearest is '
                r"'model.paligemma_with_expert.gemma_expert.model.layers.\d.input_layernorm.weight'"),
    'misspelt': (weights(lambda w: w.update({NORM + 's': w.pop(NORM)})),
                 rf"{NORM}s is no tensor of the model; nearest is 'expert.1.input_layernorm."
                 rf"weight'\n.* is missing; nearest is '{NORM}s'"),
    'unexpected': (weights(lambda w: w.update({'normalize_inputs.mean': torch.zeros(1)})),
                   'normalize_inputs.mean is no tensor of the model'),
    'other shape': (weights(lambda w: w.update({NORM: torch.zeros(5)})),
                    rf'{NORM} has shape \[5\], the model takes \[24\]'),
    'a size is missing': (weights(lambda w: w.pop(PROJECTION)),
                          "'action_in_proj.weight' is missing or has another shape"),
    'a size of another rank': (weights(lambda w: w.update({PROJECTION: torch.zeros(5)})),
                               'is missing or has another shape than in any pi0'),
    'integers': (weights(lambda w: w.update({NORM: torch.zeros(24, dtype=torch.int64)})),
                 f'{NORM} holds I64'),
    'not finite': (weights(lambda w: w.update({NORM: torch.full((24,), torch.nan)})),
                   f'{NORM} has values that are not finite'),
    'other pictures': (config(image_resolution=[224, 224]),
                       r'image_resolution is \[224, 224\], the weights are for \[56, 56\]'),
    'wide state': (config(input_features={'observation.state': {'type': 'STATE', 'shape': [40]}}),
                   'a state has 40 and an action 7 values, the weights take at most 32'),
    'text for a number': (config(chunk_size='six'), "chunk_size is 'six', must be of type int"),
    'another architecture': (config(type='pi05'), 'is a pi05, the factory file says .*: pi0'),
    'no folder': (shutil.rmtree, 'does not exist'),
    'a pickle': (lambda folder: (folder / 'model.safetensors').rename(
        folder / 'pytorch_model.bin'), 'has no model.safetensors; it has .*pytorch_model.bin'),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_said(folder, load, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load()


@pytest.mark.parametrize('changes, message', [
    ({'step_duration': 0.0}, 'step_duration: .* write 1 / the frames per second'),
    ({'tokenizer': ''}, 'has no tokenizer: copy tokenizer.json, or tokenizer.model, of google/'
     'paligemma-3b-pt-224'),
    ({'joints': JOINTS[:7]}, 'joints: .* trained with 8, the factory file names 7'),
    ({'actions': ACTIONS[:6]}, 'actions: .* trained with 7, the factory file names 6'),
], ids=['duration', 'tokenizer', 'joints', 'actions'])
def test_what_the_factory_file_lacks_is_said(folder, changes, message):
    with pytest.raises(ValueError, match=message):
        registry.load(model_of('pi0', CAMERAS['pi0'], **{'checkpoint': str(folder)} | changes),
                      'cpu')


def test_a_camera_that_is_not_the_checkpoint_s_is_named(load):
    with pytest.raises(ValueError, match=r"cameras.hand: .* no camera 'hand', it has base_0_rgb"):
        load(('base_0_rgb', 'hand'))


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


def test_a_base_model_serves_robots_of_fewer_joints(folder, load):
    for name in ('policy_preprocessor.json', 'policy_postprocessor.json'):
        edit_json(folder / name, lambda values: [step['config'].update(norm_map={})
                  for step in values['steps'] if 'normalizer' in step['registry_name']])
    model = load(joints=('a', 'b'), actions=('a', 'b', 'c'))
    assert (model.spec.state_size, model.spec.action_size) == (2, 3)
    seen = replace(Golden('pi0').observation(0), state=np.array([5, 6], np.float32))
    assert model.preprocess(seen)['state'].tolist() == [5, 6] + [0] * 30
    assert model.postprocess(torch.ones(6, 32), seen).tolist() == [[1, 1, 1]] * 6


def test_openpi_s_padded_statistics_serve_the_robot_s_own_joints(tmp_path):
    folder = openpi_folder(tmp_path / 'openpi', 'pi0')
    edit_json(folder / 'assets' / 'robot' / 'norm_stats.json', lambda values: [
        entry.update({name: [*numbers, *[0.0] * (32 - len(numbers))]
                      for name, numbers in entry.items()})
        for entry in values['norm_stats'].values()])
    model = registry.load(model_of('pi0', CAMERAS['pi0'], checkpoint=str(folder), tokenizer=''),
                          'cpu')
    assert (model.spec.state_size, model.spec.action_size) == (8, 7)
    assert model.postprocess(torch.ones(6, 32), Golden('pi0').observation(0)).shape == (6, 7)


def test_openpi_s_training_has_to_be_told_its_horizon(tmp_path):
    folder = openpi_folder(tmp_path / 'openpi', 'pi05')
    (folder / 'config.json').unlink()
    with pytest.raises(ValueError, match='action_horizon is missing: write there'):
        read_folder(folder)


def test_a_word_that_the_model_does_not_know_drops_one_request(folder, load):
    tokens = Tokenizer.from_file(str(FOLDER / 'tokenizer.json'))
    tokens.add_special_tokens([*(f'<loc{index}>' for index in range(100)), '<image>'])
    tokens.save(str(folder / 'tokenizer.json'))
    model, seen = load(tokenizer=''), Golden('pi0').observation(0)
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


def test_a_folder_describes_itself(folder):
    described = inspect(folder, str(FOLDER / 'tokenizer.json'))
    assert described.cameras == CAMERAS['pi0'] and not described.problems
    assert (described.state_size, described.action_size, described.horizon) == (8, 7, 6)
    assert described.state_units == 'scaled by mean and deviation'
    weights(lambda w: w.pop(NORM))(folder)
    problems = '\n'.join(inspect(folder).problems)
    assert 'expert.1.input_layernorm.weight [24] is missing' in problems
    assert 'has no tokenizer' in problems


def test_what_openpi_keeps_in_code_is_said(tmp_path):
    described = inspect(openpi_folder(tmp_path / 'openpi', 'pi05'))
    assert described.state_size == 8 and 'openpi does' in described.notes[0]
    assert described.tokenizer == str(tmp_path / 'openpi' / 'tokenizer.model')
