# SPDX-License-Identifier: Apache-2.0
"""Xiaomi-Robotics-0 as the engine sees it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.bench.settings import SLOS
from robion_ros.models.xiaomi import Xiaomi, XiaomiNetwork
from robion_ros.models.xiaomi_config import XIAOMI

PUBLISHED = 4.7e9
"""Parameters, as the published model is said to have."""


def on_meta(config) -> XiaomiNetwork:
    with torch.device('meta'):
        return XiaomiNetwork(config)


@pytest.fixture(scope='module')
def model(moved) -> Xiaomi:
    return moved('xiaomi_robotics_0_small')


def test_the_full_model_has_as_many_weights_as_the_published_one():
    count = sum(weight.numel() for weight in on_meta(XIAOMI).parameters())
    assert count == pytest.approx(PUBLISHED, rel=1e-2)


def test_the_full_model_sees_as_many_tokens_as_the_published_one():
    assert XIAOMI.grids == ((8, 8), (8, 8)) and XIAOMI.prefix_tokens == 256
    assert XIAOMI.expert_width == 1024 and XIAOMI.times == (0, 200, 400, 600, 800)


def test_it_has_the_deadline_of_the_paper():
    assert SLOS[XIAOMI.architecture] == 0.117


def test_cameras_of_different_sizes_are_seen_one_after_the_other(model, observe, answer):
    sizes = (64, 64), (32, 96)
    for order in (sizes, sizes[::-1]):
        other = Xiaomi(replace(model.config, pictures=order), model.network)
        assert other.config.picture_tokens == 7
        assert np.isfinite(answer(other, observe())).all()


def test_only_the_last_layers_cross_the_stages(model, observe, stack):
    c, context = model.config, model.vlm(stack(model, observe()))
    assert context['cache'].shape == (1, 3, 2, c.kv_heads, c.prefix_tokens, c.head_size)
    assert set(context) == {'cache', 'valid', 'next', 'state'}



def test_norms_and_ends_stay_precise():
    network = on_meta(XIAOMI).to_layers_dtype(torch.bfloat16)
    precise = {''.join(part for part in name if not part.isdigit())
               for name, weight in network.named_parameters() if weight.dtype == torch.float32}
    assert precise == {
        'visual.patch_embed.proj.weight', 'visual.patch_embed.proj.bias',
        'visual.pos_embed.weight', 'expert..adaln_table', 'sink.weight',
        'state_projector.layers..weight', 'action_projector.layers..weight',
        'action_output_layer.layers..weight', 't_embedder.mlp..weight',
        't_projector.layers..weight', 't_projector.layers..bias',
        *(f'language_model..{norm}.weight' for norm in (
            'input_layernorm', 'post_attention_layernorm', 'self_attn.q_norm',
            'self_attn.k_norm')),
        *(f'expert..{norm}.weight' for norm in (
            'input_layernorm', 'middle_layernorm', 'post_layernorm', 'final_layernorm',
            'attn.q_norm', 'attn.k_norm'))}
