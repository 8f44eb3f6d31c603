# SPDX-License-Identifier: Apache-2.0
"""A checkpoint folder of SmolVLA is served, or what keeps it from that is said."""

from dataclasses import replace
import shutil

import pytest
from tokenizers import processors, Tokenizer
import torch

from robion_ros.models.checkpoint import named_weights
from robion_ros.models.smolvla import inspect, SmolvlaNetwork
from robion_ros.models.smolvla_checkpoint import sized
from robion_ros.models.smolvla_config import SMOLVLA

from .golden import config, edit_json, FOLDER, GOLDEN, weights

EXPERT = 'model.vlm_with_expert.lm_expert.layers.'
KEYS = f'{EXPERT}1.self_attn.k_proj.weight'


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'smolvla', tmp_path / 'checkpoint')


@pytest.fixture
def load(folder):
    return GOLDEN['smolvla'].at(folder).load




DAMAGES = {
    'keys of another layer': (weights(lambda w: w.update({KEYS: torch.zeros(128, 12)})),
                              rf'{KEYS} has shape \[128, 12\], the model takes \[128, 128\]'),
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
    'an unknown step': (lambda folder: edit_json(
        folder / 'policy_preprocessor.json', lambda values: values['steps'].append(
            {'registry_name': 'smolvla_flip', 'config': {}})), "step 'smolvla_flip' .* not known"),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_said(folder, load, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load()




def test_settings_of_the_published_folder_are_served(folder, load):
    before = load()
    config(num_expert_layers=0, prefix_length=0, pad_language_to='max_length',
           load_vlm_weights=True, num_vlm_layers=4)(folder)
    after = load()
    assert after.config == before.config
    assert torch.equal(after.network.norm.weight, before.network.norm.weight)



def test_long_prompts_are_cut_as_lerobot_does(load):
    seen = replace(GOLDEN['smolvla'].observation(0), prompt='1' * 60)
    inputs = load().preprocess(seen)
    assert inputs['token_mask'].all() and len(inputs['tokens'].unique()) == 1


def test_a_tokenizer_adds_what_its_file_says(folder, load):
    seen = GOLDEN['smolvla'].observation(0)
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
    model, seen = load(), GOLDEN['smolvla'].observation(0)
    with pytest.raises(ValueError, match=r"'look at <row_199>.* holds a word that the"):
        model.preprocess(replace(seen, prompt='look at <row_199>'))
    model.preprocess(seen)


def test_full_sizes_are_read_off_the_tensors():
    with torch.device('meta'):
        shapes = {name: tuple(weight.shape)
                  for name, weight in named_weights(SmolvlaNetwork(SMOLVLA)).items()}
    assert sized(replace(SMOLVLA, width=1, layers=1, heads=2, vocabulary=9, shuffle=1),
                 shapes) == SMOLVLA


def test_a_folder_says_how_large_pictures_are_and_how_values_are_scaled(folder):
    described = inspect(folder)
    assert described.state_units == described.action_units == 'scaled by mean and deviation'
    assert (described.image_size, described.prompt_tokens) == (64, 48)
