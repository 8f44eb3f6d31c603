# SPDX-License-Identifier: Apache-2.0
"""A checkpoint folder of Xiaomi-Robotics-0 is served, or what keeps it from that is said."""

from dataclasses import replace
import json
import shutil

import pytest
import torch

from robion_ros.models.checkpoint import named_weights
from robion_ros.models.mibot_folder import read_mibot
from robion_ros.models.xiaomi import inspect, XiaomiNetwork
from robion_ros.models.xiaomi_checkpoint import read_sizes
from robion_ros.models.xiaomi_config import XIAOMI

from .golden import config, edit_json, FOLDER, GOLDEN, weights

SHARD = 'model-00002-of-00002.safetensors'
TEXT = 'vlm.model.language_model.'


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'xiaomi', tmp_path / 'checkpoint')


@pytest.fixture
def load(folder):
    return GOLDEN['xiaomi'].at(folder).load



def pictures(*keys, **changes):
    return config(*keys, file='preprocessor_config.json', **changes)


STEPS = [[0.0] * 32]
DAMAGES = {
    'a shard is missing': (lambda folder: (folder / SHARD).unlink(), f'has no {SHARD}'),
    'another size': (config('vlm_config', 'text_config', intermediate_size=57),
                     r'has shape \[56, 40\], the model takes \[57, 40\]'),
    'no size': (config('vlm_config', 'text_config', hidden_size=None),
                'vlm_config.text_config.hidden_size: hidden_size is None, must be of type int'),
    'other layers': (config('vlm_config', 'text_config', hidden_act='gelu'),
                     "hidden_act is 'gelu', only 'silu' is served"),
    'another epsilon': (config('vlm_config', 'text_config', rms_norm_eps=1e-5),
                        'rms_norm_eps is 1e-05, only 1e-06 is served'),
    'another rotation': (config('vlm_config', 'text_config', 'rope_scaling', rope_type='yarn'),
                         "rope_type is 'yarn', only 'default' is served"),
    'sections': (config('vlm_config', 'text_config', 'rope_scaling', mrope_section=[4, 2]),
                 r'mrope_section is \[4, 2\], must be three numbers whose sum is 8'),
    'several states': (config(state_length=4), 'state_length is 4, only 1 is served'),
    'another expert': (config('dit_config', hidden_size=64),
                       r'hidden_size and head_dim \(64, 16\), must be \(32, 16\)'),
    'other ends': (config(action_dim=60), 'action_dim is 60, only 32 is served'),
    'no processor': (lambda folder: (folder / 'preprocessor_config.json').unlink(),
                     'has no preprocessor_config.json'),
    'no statistics': (pictures(action_config={}), 'action_config is empty'),
    'statistics of another size': (pictures('action_config', golden={'mean': [[0.0]],
                                                                     'std': [[1.0]]}),
                                   'actions of golden have 1 values, the weights take 32'),
    'statistics of one step': (pictures('action_config', golden={'mean': [0.0], 'std': [1.0]}),
                               'action_config.golden: mean and std must be lists of as many'),
    'statistics that do not move': (pictures('action_config', golden={'mean': STEPS,
                                                                      'std': STEPS}),
                                    'no deviation is above 1e-05'),
    'several robots': (pictures('action_config', other={}), 'statistics of several robots, '
                       'golden, other: write one of these as robot_type into config.json'),
    'another robot': (config(robot_type='goldn'),
                      "robot_type is 'goldn', .* no statistics of it; did you mean 'golden'"),
    'an image size of no view': (config(image_sizes={'ego': [1, 2]}), 'image_sizes.ego is'),
    'no image size': (config(image_sizes={'base': 256}),
                      'image_sizes.base is 256: must be a list'),
    'a crop of nothing': (config(crop_ratio=0), 'crop_ratio 0.0 must be above 0'),
    'pictures as they are': (pictures(do_resize=False), 'do_resize is False, only True is served'),
    'no limits': (pictures(min_pixels='many'), "min_pixels and max_pixels are .'many', 6144."),
    'no mean': (pictures(image_mean=[0.5]), 'image_mean and image_std must have three numbers'),
    'another tokenizer': (config('vlm_config', image_token_id=3),
                          r'makes \[345\] of <\|image_pad\|>, the model knows it as 3'),
    'another architecture': (config(model_type='mibot_1'), "model_type 'mibot_1' is of no"),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_checkpoint_is_said(folder, load, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load()



def test_weights_of_writing_words_are_not_asked_for(folder, load):
    weights(lambda w: w.pop(f'{TEXT}norm.weight'))(folder)
    load()


def test_embeddings_that_stand_under_the_head_s_name_are_the_same(folder, load):
    before = load().network.embed_tokens.weight
    weights(lambda w: w.update({
        'vlm.lm_head.weight': w.pop(f'{TEXT}embed_tokens.weight')}))(folder)
    assert torch.equal(load().network.embed_tokens.weight, before)


def test_a_newer_configuration_says_the_same(folder, load):
    edit_json(folder / 'config.json', lambda values: values['vlm_config']['text_config'].update(
        rope_parameters={**values['vlm_config']['text_config'].pop('rope_scaling'),
                         'rope_theta': values['vlm_config']['text_config'].pop('rope_theta')}))
    assert load().config.base == 5e6


@pytest.mark.parametrize('robot, sizes, views', [
    ('libero_all', ((256, 256), (256, 256)), ('Base View', 'Left-Wrist View')),
    ('calvin_abc_orig', ((192, 192), (80, 80)), ('Base View', 'Left-Wrist View')),
    ('fractal_delta', ((256, 320),), ('Ego View',)),
    ('bridge_delta', ((256, 256),), ('Base View',))])
def test_what_published_clients_do_is_known(folder, load, robot, sizes, views):
    edit_json(folder / 'config.json', lambda values: [values.pop(key) for key in (
        'views', 'image_sizes')])
    edit_json(folder / 'preprocessor_config.json', lambda values: values.update(
        action_config={robot: values['action_config']['golden']}, min_pixels=None,
        max_pixels=None))
    made = load(GOLDEN['xiaomi'].camera_names[:len(sizes)])
    assert made.config.pictures == sizes and made.processing.views == views
    assert made.processing.crop == (1.0 if robot == 'libero_all' else 0.95)


def test_full_sizes_are_those_of_the_published_configuration(folder):
    text, vision = {
        'hidden_size': 2560, 'intermediate_size': 9728, 'num_hidden_layers': 36,
        'num_attention_heads': 32, 'head_dim': 128, 'num_key_value_heads': 8,
        'vocab_size': 151936, 'rope_theta': 5000000,
        'rope_scaling': {'rope_type': 'default', 'mrope_section': [24, 20, 20]},
    }, {'depth': 24, 'hidden_size': 1024, 'num_heads': 16, 'intermediate_size': 4096,
        'out_hidden_size': 2560, 'deepstack_visual_indexes': [5, 11, 17]}
    (folder / 'config.json').write_text(json.dumps({
        'model_type': 'mibot', 'dit_config': {}, 'vlm_config': {'text_config': text,
                                                                'vision_config': vision}}))
    assert read_sizes(read_mibot(folder).fields) == XIAOMI


def test_a_robot_of_fewer_joints_fills_its_state_up(load):
    model = load(joints=('a', 'b'))
    assert model.spec.state_size == 2
    golden = GOLDEN['xiaomi'].observation(0)
    state = model.preprocess(replace(golden, state=golden.state[:2]))['state']
    assert state.tolist() == [*golden.state[:2].tolist(), *[0.0] * 30]


def test_a_folder_says_how_values_are_scaled(folder):
    assert inspect(folder).action_units == 'scaled by mean and deviation of golden'


def test_every_weight_has_a_key_of_the_published_files():
    index = json.loads((FOLDER / 'xiaomi' / 'model.safetensors.index.json').read_text())
    kinds = {''.join(part for part in key if not part.isdigit()) for key in index['weight_map']}
    for key in ('sink.weight', 'dit.layers..attn.qkv_proj.bias', 'dit.layers..adaln_table',
                'vlm.model.visual.deepstack_merger_list..norm.weight',
                f'{TEXT}layers..self_attn.q_norm.weight', 't_projector.layers..bias'):
        assert key in kinds
    with torch.device('meta'):
        names = named_weights(XiaomiNetwork(XIAOMI))
    assert len(names) == 36 * 11 + 2 + 1 + 24 * 12 + 4 * 6 + 16 * 13 + 3 * 2 + 2 + 2 + 1 + 1
