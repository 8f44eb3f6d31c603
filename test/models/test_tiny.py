# SPDX-License-Identifier: Apache-2.0
"""The tiny model as the engine sees it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.models import registry
from robion_ros.models.checkpoint import named_weights
from robion_ros.models.tiny import Tiny, TinyConfig


def test_actions_depend_on_noise_and_weights(tiny, observe, answer, model_config):
    other = registry.load(model_config(seed=1), 'cpu')
    first = answer(tiny, observe())
    assert np.abs(first - answer(tiny, observe(), seed=1)).max() > 1e-3
    assert np.abs(first - answer(other, observe())).max() > 1e-3
    np.testing.assert_array_equal(first, answer(tiny, observe()))


def test_the_vlm_stage_hands_over_keys_and_values_of_prefix_and_state(tiny, observe, stack):
    c = tiny.config
    context = tiny.vlm(stack(tiny, observe(prompt='pick'), observe(prompt='put')))
    patches = c.cameras * (c.image_size // c.patch_size) ** 2
    tokens = patches + c.prompt_tokens + 1
    assert set(context) == {'cache', 'valid'}
    assert context['cache'].shape == (2, c.layers, 2, c.kv_heads, tokens, c.head_size)
    assert context['cache'].isfinite().all()
    words = len('pick') + 2  # begin and newline
    expected = [True] * (patches + words) + [False] * (c.prompt_tokens - words) + [True]
    assert context['valid'][0].tolist() == expected


def test_noise_comes_from_each_seed_alone(tiny):
    state = torch.get_rng_state()
    together = tiny.noise([3, 2**63 - 1, 3])
    assert together.shape == (3, tiny.config.horizon, tiny.config.padded_size)
    torch.testing.assert_close(together[1:2], tiny.noise([2**63 - 1]), atol=0, rtol=0)
    torch.testing.assert_close(together[0], together[2], atol=0, rtol=0)
    assert not torch.equal(together[0], together[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert abs(together.mean()) < 0.2 and abs(together.std() - 1) < 0.2



def test_random_weights_are_the_same_everywhere(tiny, model_config):
    state = torch.get_rng_state()
    again = named_weights(registry.load(model_config(), 'cpu').network)
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in named_weights(tiny.network).items():
        torch.testing.assert_close(again[name], weight, atol=0, rtol=0, msg=name)
    early, late = again['state_proj.weight'], again['expert.2.mlp.down_proj.weight']
    assert early[0, :2].tolist() == [0.20203238725662231, 0.12975376844406128]
    assert late[-1, -2:].tolist() == [0.059609487652778625, 0.08433055877685547]


def test_states_and_actions_are_scaled_by_the_statistics(tiny, observe):
    statistics = {'state_mean': (1.0,) * 7, 'state_std': (2.0,) * 7,
                  'action_mean': (0.0, 10.0), 'action_std': (1.0, 0.1)}
    model = Tiny(replace(tiny.config, **statistics), tiny.network)
    observation = replace(observe(), state=np.arange(7, dtype=np.float32))
    state = model.preprocess(observation)['state']
    assert state.tolist() == [-0.5, 0, 0.5, 1, 1.5, 2, 2.5] + [0] * 25
    actions = model.postprocess(torch.ones(10, 32), observation)
    np.testing.assert_allclose(actions, [[1.0, 10.1]] * 10)


def test_images_stay_bytes_and_prompts_are_tokenised_once(tiny, observe):
    first, second = tiny.preprocess(observe(0)), tiny.preprocess(observe(1))
    assert first['images'].dtype == torch.uint8 and first['images'].shape == (2, 64, 64, 3)
    assert first['tokens'] is second['tokens']
    for prompt in range(2000):
        tiny.tokens(str(prompt))
    assert tiny.tokens.cache_info().currsize <= 1024


@pytest.mark.parametrize('prompt', ['pick_up the cube', '  pick up the cube\n'])
def test_prompts_are_worded_as_pi0_words_them(tiny, prompt):
    assert torch.equal(tiny.tokens(prompt)[0], tiny.tokens('pick up the cube')[0])


@pytest.mark.parametrize('change, message', [
    ({'images': ()}, 'has 0 images, the model takes 2'),
    ({'state': np.zeros(6, np.float32)}, r'state has shape \[6\], the model takes \[7\]'),
    ({'state': np.zeros((1, 7), np.float32)}, r'state has shape \[1, 7\], the model takes \[7\]'),
    ({'prompt': ''}, "prompt is ''"),
    ({'prompt': ' \n'}, r"prompt is ' \\n'"),
], ids=['no images', 'a joint short', 'two axes', 'empty prompt', 'blank prompt'])
def test_an_observation_that_does_not_fit_is_refused(tiny, observe, change, message):
    with pytest.raises(ValueError, match=message):
        tiny.preprocess(replace(observe(), **change))


STATISTICS = {'state_mean': (0.0,), 'state_std': (1.0,), 'action_mean': (0.0,),
              'action_std': (1.0,)}


@pytest.mark.parametrize('change, message', [
    ({'cameras': 0}, 'cameras: is 0'),
    ({'steps': 0}, 'steps: is 0'),
    ({'step_duration': float('nan')}, 'step_duration: is nan'),
    ({'patch_size': 15}, 'image_size: is 64, must be a multiple of patch_size, 15'),
    ({'heads': 3, 'kv_heads': 2}, 'heads: is 3, must be a multiple of kv_heads, 2'),
    ({'head_size': 31}, 'head_size: is 31, must be even'),
    ({'state_std': (1.0, 1.0)}, 'state_mean: has 1 values and state_std 2'),
    ({'action_mean': (), 'action_std': ()}, 'action_mean: has 0 values'),
    ({'action_std': (0.0,)}, r'action_std\[0\]: is 0.0'),
    ({'state_mean': (float('inf'),)}, r'state_mean\[0\]: is inf'),
    ({'padded_size': 2, 'state_mean': (0.0,) * 3, 'state_std': (1.0,) * 3},
     'padded_size: is 2, must be from 3'),
])
def test_a_configuration_that_cannot_be_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TinyConfig(**({'cameras': 1} | STATISTICS | change))
