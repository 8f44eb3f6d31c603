# SPDX-License-Identifier: Apache-2.0
"""SmolVLA as the engine and a checkpoint see it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.models import layers
from robion_ros.models.smolvla import Smolvla, SmolvlaNetwork
from robion_ros.models.smolvla_config import CONFIGS, SMOLVLA

UNUSED_HEAD = 49_280 * 960
"""The language model's head: checkpoints hold it, nothing uses it."""


def on_meta(config) -> SmolvlaNetwork:
    with torch.device('meta'):
        return SmolvlaNetwork(config)


def test_the_full_model_has_as_many_weights_as_the_published_one():
    count = sum(weight.numel() for weight in on_meta(SMOLVLA).parameters())
    assert count + UNUSED_HEAD == pytest.approx(450e6, rel=0.01)
    expert = sum(weight.numel() for weight in on_meta(SMOLVLA).expert.parameters())
    assert expert == pytest.approx(98e6, rel=0.01)


def test_the_full_model_sees_as_many_tokens_as_the_published_one():
    assert SMOLVLA.prefix_tokens == 3 * 64 + 48 + 1
    assert SMOLVLA.joint == tuple(range(0, 16, 2)) and SMOLVLA.crossed == tuple(range(1, 16, 2))


def test_what_pictures_and_words_give_does_not_depend_on_the_state(smolvla, observe, stack):
    first, second = (smolvla.vlm(stack(smolvla, replace(
        observe(), state=np.full(7, value, np.float32)))) for value in (0, 1))
    for name in ('joint', 'prefix'):
        torch.testing.assert_close(first[name][..., :-1, :], second[name][..., :-1, :], atol=0,
                                   rtol=0)
        assert not torch.allclose(first[name][..., -1, :], second[name][..., -1, :])


def test_an_action_does_not_see_those_after_it(smolvla, observe, stack):
    begun = smolvla.adit_begin(smolvla.vlm(stack(smolvla, observe())))
    noise, step = smolvla.noise([1]), torch.tensor([0])
    other = torch.cat((noise[:, :-1], -noise[:, -1:]), 1)
    first, second = (smolvla.adit_step(begun, actions, step) for actions in (noise, other))
    torch.testing.assert_close(first[:, :-1], second[:, :-1], atol=0, rtol=0)


@pytest.mark.parametrize('every', [2, 3, 4])
def test_layers_in_which_actions_see_each_other_come_every_so_often(observe, answer, every):
    config = replace(CONFIGS['smolvla_small'], cameras=2, state_size=7, action_size=7,
                     joint_every=every)
    network = SmolvlaNetwork(config).requires_grad_(False)
    layers.randomise(network, 0)
    assert len(config.joint) == len(range(0, 4, every))
    assert np.isfinite(answer(Smolvla(config, network), observe())).all()



def test_bfloat16_layers_give_about_the_same(smolvla, observe, answer):
    network = SmolvlaNetwork(smolvla.config).requires_grad_(False)
    network.load_state_dict(smolvla.network.state_dict())
    rounded = Smolvla(smolvla.config, network.to_layers_dtype(torch.bfloat16))
    assert rounded.seen_scale == 8 and SMOLVLA.width == 960
    difference = np.abs(answer(rounded, observe()) - answer(smolvla, observe()))
    assert difference.max() < 0.1 and difference.mean() < 0.02


def test_the_factor_of_pictures_is_rounded_to_their_type():
    config = replace(CONFIGS['smolvla_small'], width=960)
    for dtype, factor in ((torch.bfloat16, 31.0), (torch.float32, 960 ** 0.5)):
        model = Smolvla(config, on_meta(config).to_layers_dtype(dtype))
        assert model.seen_scale == pytest.approx(factor, rel=1e-7)


def test_norms_and_ends_stay_precise():
    network = on_meta(SMOLVLA).to_layers_dtype(torch.bfloat16)
    precise = {name for name, weight in network.named_parameters()
               if weight.dtype == torch.float32}
    kinds = {''.join(part for part in name if not part.isdigit()) for name in precise}
    assert kinds == {
        *(f'{end}.{kind}' for end in ('action_in_proj', 'action_out_proj', 'state_proj',
                                      'action_time_mlp_in', 'vision_tower.patch_embedding')
          for kind in ('weight', 'bias')),
        *(f'{stack}..{norm}.weight' for stack in ('language_model', 'expert')
          for norm in ('input_layernorm', 'post_attention_layernorm')),
        'norm.weight', 'vision_tower.position_embedding.weight'}
