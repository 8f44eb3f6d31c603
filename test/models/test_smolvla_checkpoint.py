# SPDX-License-Identifier: Apache-2.0
"""A checkpoint folder of SmolVLA is served, or what keeps it from that is said."""

from dataclasses import replace
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tokenizers import processors, Tokenizer
import torch

from robion_ros.models import registry
from robion_ros.models.checkpoint import named_weights
from robion_ros.models.smolvla import inspect, SmolvlaNetwork
from robion_ros.models.smolvla_checkpoint import sized
from robion_ros.models.smolvla_config import SMOLVLA

from .golden import ACTIONS, CAMERAS, edit_json, FOLDER, Golden, JOINTS, model_of

EXPERT = 'model.vlm_with_expert.lm_expert.layers.'
KEYS, NORM = f'{EXPERT}1.self_attn.k_proj.weight', f'{EXPERT}2.input_layernorm.weight'


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'smolvla', tmp_path / 'checkpoint')


@pytest.fixture
def load(folder):
    return lambda cameras=CAMERAS['smolvla'], **changes: registry.load(model_of(
        'smolvla', cameras, **{'checkpoint': str(folder), 'tokenizer': '', 'joints': JOINTS[:6]}
        | changes), 'cpu')


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
                r'expert.2.input_layernorm.weight \[12\] is missing; nearest is '
                rf"'{EXPERT}\d.input_layernorm.weight'"),
    'misspelt': (weights(lambda w: w.update({NORM + 's': w.pop(NORM)})),
                 rf"{NORM}s is no tensor of the model; nearest is 'expert.2.input_layernorm."
                 rf"weight'\n.* is missing; nearest is '{NORM}s'"),
    'statistics of older files': (
        weights(lambda w: w.update({'normalize_inputs.so100.mean': torch.zeros(1)})),
        'normalize_inputs.so100.mean is no tensor of the model'),
    'other shape': (weights(lambda w: w.update({KEYS: torch.zeros(128, 12)})),
                    rf'{KEYS} has shape \[128, 12\], the model takes \[128, 128\]'),
    'a size is missing': (weights(lambda w: w.pop('model.action_in_proj.weight')),
                          "'action_in_proj.weight' is missing or has another shape than in any "
                          'smolvla'),
    'a size of another rank': (
        weights(lambda w: w.update({'model.action_in_proj.weight': torch.zeros(5)})),
        'is missing or has another shape than in any smolvla'),
    'not finite': (weights(lambda w: w.update({NORM: torch.full((12,), torch.nan)})),
                   f'{NORM} has values that are not finite'),
    'other pictures': (config(resize_imgs_with_padding=[512, 512]), r'resize_imgs_with_padding is '
                       r'\[512, 512\], the weights are for \[64, 64\]'),
    'wide state': (config(input_features={'observation.state': {'type': 'STATE', 'shape': [40]}}),
                   'a state has 40 and an action 7 values, the weights take at most 32'),
    'text for a number': (config(num_steps='ten'), "num_steps is 'ten', must be of type int"),
    'attention': (config(attention_mode='self_attn'),
                  "attention_mode is 'self_attn', only 'cross_attn' is served"),
    'layers': (config(self_attn_every_n_layers=0), 'self_attn_every_n_layers is 0, must be from 2 '
               'to 4'),
    'other layers': (config(self_attn_every_n_layers=3), rf'{EXPERT}2.self_attn.k_proj.weight has '
                     r'shape \[128, 12\], the model takes \[128, 128\]'),
    'few layers of the expert': (config(num_expert_layers=2), 'num_expert_layers is 2, only as '
                                 'many as the language model has, 4, are served'),
    'tokens around pictures': (config(add_image_special_tokens=True),
                               'add_image_special_tokens is True, only False is served'),
    'Aloha': (config(adapt_to_pi_aloha=True), 'adapt_to_pi_aloha is True, only False is served'),
    'another architecture': (config(type='pi0'), 'is a pi0, the factory file says .*: smolvla'),
    'a pickle': (lambda folder: (folder / 'model.safetensors').rename(
        folder / 'pytorch_model.bin'), 'has no model.safetensors; it has .*pytorch_model.bin'),
    'no tokenizer': (lambda folder: (folder / 'tokenizer.json').unlink(), 'has no tokenizer: copy '
                     'tokenizer.json of HuggingFaceTB/SmolVLM2-500M-Video-Instruct'),
    'an unknown step': (lambda folder: edit_json(
        folder / 'policy_preprocessor.json', lambda values: values['steps'].append(
            {'registry_name': 'smolvla_flip', 'config': {}})), "step 'smolvla_flip' .* not known"),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_said(folder, load, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load()


@pytest.mark.parametrize('changes, message', [
    ({'step_duration': 0.0}, 'step_duration: .* write 1 / the frames per second'),
    ({'joints': JOINTS[:5]}, 'joints: .* trained with 6, the factory file names 5'),
    ({'actions': ACTIONS[:6]}, 'actions: .* trained with 7, the factory file names 6'),
], ids=['duration', 'joints', 'actions'])
def test_what_the_factory_file_lacks_is_said(load, changes, message):
    with pytest.raises(ValueError, match=message):
        load(**changes)


def test_a_camera_that_is_not_the_checkpoint_s_is_named(load):
    with pytest.raises(ValueError, match=r"cameras.hand: .* no camera 'hand', it has image"):
        load(('image', 'hand'))


def test_settings_of_the_published_folder_are_served(folder, load):
    before = load()
    config(num_expert_layers=0, prefix_length=0, pad_language_to='max_length',
           load_vlm_weights=True, num_vlm_layers=4)(folder)
    after = load()
    assert after.config == before.config
    assert torch.equal(after.network.norm.weight, before.network.norm.weight)


def test_a_base_model_serves_robots_of_fewer_joints(folder, load):
    for name in ('policy_preprocessor.json', 'policy_postprocessor.json'):
        edit_json(folder / name, lambda values: [step['config'].update(norm_map={})
                  for step in values['steps'] if 'normalizer' in step['registry_name']])
    model = load(joints=('a', 'b'), actions=('a', 'b', 'c'))
    assert (model.spec.state_size, model.spec.action_size) == (2, 3)
    seen = replace(Golden('smolvla').observation(0), state=np.array([5, 6], np.float32))
    assert model.preprocess(seen)['state'].tolist() == [5, 6] + [0] * 30
    assert model.postprocess(torch.ones(6, 32), seen).tolist() == [[1, 1, 1]] * 6


def test_long_prompts_are_cut_as_lerobot_does(load):
    seen = replace(Golden('smolvla').observation(0), prompt='1' * 60)
    inputs = load().preprocess(seen)
    assert inputs['token_mask'].all() and len(inputs['tokens'].unique()) == 1


def test_a_tokenizer_adds_what_its_file_says(folder, load):
    seen = Golden('smolvla').observation(0)
    before = load().preprocess(seen)
    tokens = Tokenizer.from_file(str(folder / 'tokenizer.json'))
    tokens.post_processor = processors.TemplateProcessing(
        single='<|im_start|> $A', special_tokens=[('<|im_start|>', 1)])
    tokens.save(str(folder / 'tokenizer.json'))
    after = load().preprocess(seen)
    assert after['tokens'].tolist()[:3] == [1, *before['tokens'].tolist()[:2]]


def test_a_word_that_the_model_does_not_know_drops_one_request(folder, load):
    tokens = Tokenizer.from_file(str(folder / 'tokenizer.json'))
    tokens.add_special_tokens([f'<row_{index}>' for index in range(200)])
    tokens.save(str(folder / 'tokenizer.json'))
    model, seen = load(), Golden('smolvla').observation(0)
    with pytest.raises(ValueError, match=r"'look at <row_199>.* holds a word that the"):
        model.preprocess(replace(seen, prompt='look at <row_199>'))
    model.preprocess(seen)


def test_full_sizes_are_read_off_the_tensors():
    with torch.device('meta'):
        shapes = {name: tuple(weight.shape)
                  for name, weight in named_weights(SmolvlaNetwork(SMOLVLA)).items()}
    assert sized(replace(SMOLVLA, width=1, layers=1, heads=2, vocabulary=9, shuffle=1),
                 shapes) == SMOLVLA


def test_a_folder_describes_itself(folder):
    described = inspect(folder)
    assert described.cameras == CAMERAS['smolvla'] and not described.problems
    assert (described.state_size, described.action_size, described.horizon) == (6, 7, 6)
    assert described.state_units == described.action_units == 'scaled by mean and deviation'
    assert described.tokenizer == str(folder / 'tokenizer.json')
    assert (described.image_size, described.prompt_tokens) == (64, 48)
    weights(lambda w: w.pop(NORM))(folder)
    (folder / 'tokenizer.json').unlink()
    problems = '\n'.join(inspect(folder).problems)
    assert 'expert.2.input_layernorm.weight [12] is missing' in problems
    assert 'has no tokenizer' in problems
