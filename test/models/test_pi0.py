# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 as the engine and a checkpoint see them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.models import processing
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import PI0, PI05
from robion_ros.models.pi0_processing import Pi0Processing
from robion_ros.models.tokenizer import byte_tokens

UNUSED_HEAD = 257_152 * 1024
"""The expert's language head: checkpoints hold it, nothing uses it."""


def on_meta(config) -> Pi0Network:
    with torch.device('meta'):
        return Pi0Network(config)


@pytest.mark.parametrize('config, published', [
    (PI0, 3.24e9), (PI05, 3.62e9 - UNUSED_HEAD),
], ids=['pi0', 'pi05'])
def test_the_full_model_has_as_many_weights_as_the_published_one(config, published):
    count = sum(weight.numel() for weight in on_meta(config).parameters())
    assert count == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize('config, prefix, own', [(PI0, 816, 51), (PI05, 968, 50)],
                         ids=['pi0', 'pi05'])
def test_the_full_model_sees_as_many_tokens_as_the_published_one(config, prefix, own):
    assert (config.prefix_tokens, config.own_tokens) == (prefix, own)



def test_norms_and_ends_stay_precise():
    network = on_meta(PI05).to_layers_dtype(torch.bfloat16)
    precise = {name for name, weight in network.named_parameters()
               if weight.dtype == torch.float32}
    kinds = {''.join(part for part in name if not part.isdigit()) for name in precise}
    assert kinds == {
        *(f'{end}.{kind}' for end in ('action_in_proj', 'action_out_proj', 'time_mlp_in',
                                      'time_mlp_out', 'vision_tower.patch_embedding', 'norm.dense',
                                      'expert..input_layernorm.dense',
                                      'expert..post_attention_layernorm.dense')
          for kind in ('weight', 'bias')),
        'vision_tower.position_embedding.weight', 'language_model..input_layernorm.weight',
        'language_model..post_attention_layernorm.weight'}


def test_prompts_are_worded_as_the_published_ones(pi0, observe):
    observation = replace(observe(prompt=' pick_it '),
                          state=np.array([-1, -0.999, 0, 0.5, 0.999, 1, 2], np.float32))
    inputs = pi0.preprocess(observation)
    words = 'pick it\n'
    if pi0.config.adaptive:
        words = 'Task: pick it, State: 0 0 128 192 255 255 255;\nAction: '
    assert inputs['tokens'][inputs['token_mask']].tolist() == byte_tokens(words)
    assert len(inputs['tokens']) == (200 if pi0.config.adaptive else 48)
    assert ('state' in inputs) is not pi0.config.adaptive


def test_states_and_actions_are_scaled(pi0, observe):
    model = Pi0(pi0.config, pi0.network, Pi0Processing(
        pi0.config, actions=processing.Scaling(10.0, 0.1),
        state=processing.Scaling(np.zeros(7), np.full(7, 2.0))))
    observation = replace(observe(), state=np.ones(7, np.float32))
    if not pi0.config.adaptive:
        state = model.preprocess(observation)['state']
        assert state.tolist() == [0.5] * 7 + [0.0] * 25
    np.testing.assert_allclose(model.postprocess(torch.ones(10, 32), observation),
                               np.full((10, 7), 10.1), rtol=1e-6)
