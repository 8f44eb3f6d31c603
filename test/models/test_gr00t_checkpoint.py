# SPDX-License-Identifier: Apache-2.0
"""A checkpoint folder of GR00T N1.5 is served, or what keeps it from that is said."""

from dataclasses import replace
import shutil

import pytest
from safetensors.torch import load_file, save_file
import torch

from robion_ros.models.checkpoint import named_weights
from robion_ros.models.gr00t import inspect
from robion_ros.models.gr00t_checkpoint import sized
from robion_ros.models.gr00t_config import FULL
from robion_ros.models.gr00t_network import Gr00tNetwork
from robion_ros.models.isaac_units import Range

from .golden import config, edit_json, FOLDER, GOLDEN, lerobot_folder, weights

HEAD = 'backbone.eagle_model.language_model.lm_head.weight'
WORDS = 'backbone.eagle_model.language_model.model.embed_tokens.weight'
DECODER = 'action_head.action_decoder.layer2.W'
STATISTICS = 'policy_preprocessor_step_2_groot_pack_inputs_v3.safetensors'
TOKENIZER = str(FOLDER / 'gr00t_tokenizer' / 'vocab.json')
PACK, UNPACK = 'policy_preprocessor.json', 'policy_postprocessor.json'


@pytest.fixture
def folder(tmp_path):
    """Return what Isaac-GR00T saves."""
    return shutil.copytree(FOLDER / 'gr00t', tmp_path / 'isaac')


@pytest.fixture
def lerobot(tmp_path):
    return lerobot_folder(tmp_path / 'lerobot')


def load(folder, **changes):
    return GOLDEN['gr00t'].at(folder).load(**changes)





DAMAGES = {
    'a projection': (weights(lambda w: w.update(
        {'backbone.eagle_linear.weight': torch.zeros(2, 2)})), 'eagle_linear.weight is no tensor'),
    'of fewer kinds': (weights(lambda w: w.update({DECODER: w[DECODER][:4]})),
                       rf'{DECODER} has shape \[4, 12, 9\], the model takes \[32, 12, 9\]'),
    'another layer': (config('backbone_cfg', select_layer=2),
                      'select_layer is 2, the weights have 3 layers'),
    'a narrower context': (config('backbone_cfg', project_to_dim=1536),
                           'backbone_cfg.project_to_dim is 1536, must be None: another network'),
    'no adapter': (config('action_head_cfg', use_vlln=False), 'use_vlln is False, must be True'),
    'places': (config('action_head_cfg', 'diffusion_model_cfg',
                      positional_embeddings='sinusoidal'), "_embeddings is 'sinusoidal', must"),
    'heads': (config('action_head_cfg', 'diffusion_model_cfg', num_attention_heads=5),
              '5 heads do not divide the width 16 of the expert'),
    'no heads': (config('action_head_cfg', 'diffusion_model_cfg', num_attention_heads='4'),
                 "num_attention_heads is '4', must be a whole number from 1"),
    'no steps': (config('action_head_cfg', num_inference_timesteps=0), 'num_inference_timesteps'),
    'a long chunk': (config('action_head_cfg', action_horizon=13),
                     'action_horizon: 13, the weights take at most 12'),
    'no head': (config(action_head_cfg=None), 'action_head_cfg.* is '),
    'a kind too many': (config(embodiment_id=32), 'embodiment_id: 32, .* at most 31'),
    'a short prompt': (config(tokenizer_max_length=2), 'tokenizer_max_length is 2, must be'),
    'another architecture': (config(model_type='gr00t_n1_7'), "model_type 'gr00t_n1_7' is of no"),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_said(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load(folder)


def step(name, **changes):
    def change(values):
        for entry in values['steps']:
            if entry['registry_name'].startswith('groot_'):
                entry['config'].update(changes)
    return lambda folder: edit_json(folder / name, change)


def without(name, part):
    return lambda folder: edit_json(folder / name, lambda values: values.update(
        steps=[entry for entry in values['steps'] if part not in entry['registry_name']]))


def statistics(change):
    def damage(folder):
        found = load_file(folder / STATISTICS)
        change(found)
        save_file(found, folder / STATISTICS)
    return damage


LEROBOT_DAMAGES = {
    'no packing': (without(PACK, 'pack'), 'the step groot_pack_inputs_v3 is missing'),
    'no unpacking': (without(UNPACK, 'unpack'), 'the step groot_action_unpack_unnormalize_v1 is'),
    'another width': (step(PACK, max_state_dim=64), 'max_state_dim is 64, the weights take 10'),
    'a wide state': (config('input_features', 'observation.state', shape=[11]),
                     'a state has 11 values, the weights take at most 10'),
    'a wide action': (config('output_features', 'action', shape=[12]),
                      'values of an action: 12, the weights take at most 9'),
    'no minimum': (statistics(lambda found: found.pop('observation.state.min')),
                   'observation.state: MIN_MAX needs min'),
    'short': (statistics(lambda found: found.update({'observation.state.max': torch.zeros(3)})),
              r'max has shape \[3\], must be 8 finite numbers'),
    'a step that is not known': (lambda folder: edit_json(folder / PACK, lambda values: values[
        'steps'].append({'registry_name': 'flip', 'config': {}})), "the step 'flip'"),
    'a number': (step(PACK, embodiment_mapping={'gr1': 'x'}), "embodiment_id: 'x'"),
}


@pytest.mark.parametrize('damage, message', LEROBOT_DAMAGES.values(), ids=LEROBOT_DAMAGES)
def test_what_is_wrong_with_what_lerobot_saves_is_said(lerobot, damage, message):
    damage(lerobot)
    with pytest.raises(ValueError, match=message):
        load(lerobot)



@pytest.mark.parametrize('drop, moved', [(HEAD, False), (WORDS, True)])
def test_embeddings_are_their_own_where_both_are_there(folder, drop, moved):
    weights(lambda w: w.update({HEAD: w[HEAD] + 1}))(folder)
    before = load(folder).network.embed_tokens.weight
    weights(lambda w: w.pop(drop))(folder)
    assert torch.equal(load(folder).network.embed_tokens.weight, before) is not moved


def test_the_head_of_the_pictures_is_not_asked_for(folder):
    weights(lambda w: [w.pop(key) for key in list(w) if '.vision_model.head.' in key])(folder)
    load(folder)


def test_an_unknown_kind_of_robots_is_that_of_number_0_as_in_lerobot(lerobot):
    step(PACK, embodiment_tag='mine')(lerobot)
    assert load(lerobot).config.embodiment == 0


def test_without_statistics_values_pass_as_they_are(lerobot):
    step(PACK, normalize_min_max=False)(lerobot)
    step(UNPACK, normalize_min_max=False)(lerobot)
    model, seen = load(lerobot), GOLDEN['gr00t'].observation(0)
    assert model.preprocess(seen)['state'][:8].tolist() == seen.state.tolist()
    assert model.postprocess(torch.ones(5, 9), seen).tolist() == [[1] * 7] * 5
    assert not isinstance(model.processing.state, Range)


def test_an_instruction_is_formalised_where_training_did_so(lerobot):
    seen = replace(GOLDEN['gr00t'].observation(0), prompt='PICK!')
    first = load(lerobot).preprocess(seen)['tokens']
    step(PACK, formalize_language=True)(lerobot)
    model = load(lerobot)
    assert not torch.equal(model.preprocess(seen)['tokens'], first)
    again = model.preprocess(replace(seen, prompt='pick'))['tokens']
    assert torch.equal(model.preprocess(seen)['tokens'], again)


def test_a_longer_prompt_is_read_where_config_json_says_so(folder):
    seen = replace(GOLDEN['gr00t'].observation(0), prompt='pick ' * 80)
    with pytest.raises(ValueError, match='the model reads 72'):
        load(folder).preprocess(seen)
    config(tokenizer_max_length=400)(folder)
    model = load(folder)
    assert model.preprocess(seen)['token_mask'].sum() > 80
    assert model.config.context_tokens % 8 == 0


def test_the_tokenizer_may_lie_beside_the_weights(folder):
    for path in (FOLDER / 'gr00t_tokenizer').iterdir():
        shutil.copy(path, folder)
    load(folder, tokenizer='')


def test_full_sizes_are_read_off_the_tensors():
    with torch.device('meta'):
        shapes = {name: tuple(weight.shape)
                  for name, weight in named_weights(Gr00tNetwork(FULL)).items()}
    other = replace(FULL, width=1, layers=1, heads=2, kv_heads=3, vocabulary=9, embodiments=2,
                    padded_state=1, padded_action=1, expert_width=1, places=1, future_tokens=2)
    assert sized(other, shapes) == FULL


def test_a_folder_of_isaac_describes_itself(folder):
    described = inspect(folder, TOKENIZER)
    assert (described.architecture, described.layout) == ('gr00t_n1_5', 'Isaac-GR00T')
    assert described.action_names[-1] == 'gripper' and described.step_duration == 0.05
    assert described.state_units == 'min_max'
    assert any('95 %' in note for note in described.notes)
    assert any('data_config' in note for note in described.notes)


def test_a_folder_of_lerobot_describes_itself(lerobot):
    described = inspect(lerobot, TOKENIZER)
    assert described.layout == 'lerobot' and described.cameras == ('front', 'wrist')
    assert described.step_duration is None and not described.problems and not described.notes
    config(base_model_path='nvidia/GR00T-N1.5-3B')(lerobot)
    with pytest.raises(ValueError, match='32 heads do not divide the width 16'):
        inspect(lerobot)
