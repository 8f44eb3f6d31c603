# SPDX-License-Identifier: Apache-2.0
"""GR00T N1.5 as the engine sees it."""

from dataclasses import replace

import pytest
import torch

from robion_ros.models.gr00t import Gr00t
from robion_ros.models.gr00t_config import CONFIGS, FULL
from robion_ros.models.gr00t_network import Gr00tNetwork
from robion_ros.models.gr00t_processing import Gr00tProcessing

PUBLISHED = 2_724_163_520
HEADS = 151_680 * 2048, 15_238_352
"""Of words and of pictures: the checkpoint holds them, nothing uses them."""


def on_meta(config) -> Gr00tNetwork:
    with torch.device('meta'):
        return Gr00tNetwork(config).requires_grad_(False)


@pytest.fixture(scope='module')
def gr00t(moved) -> Gr00t:
    return moved('gr00t_n1_5_small')


def test_the_full_model_has_as_many_weights_as_the_published_one():
    count = sum(weight.numel() for weight in on_meta(FULL).parameters())
    assert count == PUBLISHED - sum(HEADS)


def test_the_full_model_sees_as_many_tokens_as_the_published_one():
    assert FULL.image_tokens == 256
    three = Gr00tProcessing.made_up(replace(FULL, cameras=3)).config
    assert three.context_tokens == 880 and three.times == (0, 250, 500, 750)


def test_a_masked_camera_s_pixels_count_for_nothing(gr00t, observe, stack):
    inputs = stack(gr00t, observe()) | {'image_mask': torch.tensor([[True, False]])}
    other = inputs | {'images': torch.cat((inputs['images'][:, :1],
                                           255 - inputs['images'][:, 1:]), 1)}
    first, second = (gr00t.adit(gr00t.vlm(seen), gr00t.noise([3])) for seen in (inputs, other))
    torch.testing.assert_close(first, second, atol=0, rtol=0)



def test_norms_and_ends_stay_precise():
    network = on_meta(CONFIGS['gr00t_n1_5_small']).to_layers_dtype(torch.bfloat16).choose(0)
    precise = {name for name, weight in network.named_parameters()
               if weight.dtype == torch.float32}
    kinds = {''.join(part for part in name if not part.isdigit()) for name in precise}
    ends = ('time_in', 'time_out', 'proj_out_', 'vision_tower.patch_embedding',
            'expert..norm.linear', 'state_encoder.layer', 'action_encoder.W',
            'action_decoder.layer')
    assert kinds == {
        *(f'{end}.{kind}' for end in ends for kind in ('weight', 'bias')),
        'vision_tower.position_embedding.weight', 'norm.weight', 'future_tokens.weight',
        'position_embedding.weight', *(f'language_model..{norm}.weight' for norm in (
            'input_layernorm', 'post_attention_layernorm', 'self_attn.q_norm',
            'self_attn.k_norm'))}
    assert network.action_encoder['W3'].weight.dtype == torch.bfloat16


def test_one_kind_of_robots_is_kept_of_the_layers_that_each_has():
    network = Gr00tNetwork(CONFIGS['gr00t_n1_5_small']).requires_grad_(False)
    layer = network.state_encoder['layer1']
    layer.W[1].fill_(2)
    layer.b[1].fill_(3)
    network.choose(1)
    kept = network.state_encoder['layer1']
    assert kept.weight.shape == (24, 32)
    assert kept(torch.ones(1, 32)).tolist() == [[67.0] * 24]
