# SPDX-License-Identifier: Apache-2.0
"""pi0 and pi0.5 as the engine and a checkpoint see them."""

from dataclasses import replace
import json

import numpy as np
import pytest
from safetensors.torch import save_file
import torch

from robion_ros.models import checkpoint, processing, registry
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import CONFIGS, KEYS, PI0, PI05
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


@pytest.mark.parametrize('name, dtype', [
    *((name, torch.bfloat16) for name in sorted(CONFIGS)), ('pi0_small', torch.float32)])
def test_the_stages_never_look_at_values(name, dtype, observe, stack, only_meta):
    config = replace(CONFIGS[name], cameras=2, state_size=7)
    network = on_meta(config).requires_grad_(False).to_layers_dtype(dtype)
    model = Pi0(config, network)
    inputs = {key: tensor.to('meta') for key, tensor in stack(model, observe()).items()}
    noise = model.noise([0]).to('meta')
    with only_meta():
        context = model.vlm(inputs)
        actions = model.adit(context, noise)
    assert context['cache'].dtype == dtype
    assert actions.shape == noise.shape and actions.dtype == torch.float32


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


@pytest.mark.parametrize('change, message', [
    ({'checkpoint': 'somewhere'}, 'checkpoint: pi0_small is served with random weights alone'),
    ({'joints': tuple(f'j{index}' for index in range(33))}, 'joints: are 33, .* at most 32'),
    ({'actions': tuple(f'a{index}' for index in range(33))}, 'actions: are 33, .* at most 32'),
], ids=['checkpoint', 'joints', 'actions'])
def test_what_the_model_cannot_be_is_refused(model_config, change, message):
    with pytest.raises(ValueError, match=message):
        registry.load(model_config(architecture='pi0_small', **change), 'cpu')


def published_names(network: Pi0Network) -> dict[str, torch.Tensor]:
    """Return weights by openpi's names, written from the other end."""
    paligemma = 'paligemma_with_expert.paligemma.model.'
    vision = f'{paligemma}vision_tower.vision_model.'
    expert = 'paligemma_with_expert.gemma_expert.model.'
    prefixes = {
        'vision_tower.layers.': f'{vision}encoder.layers.',
        'vision_tower.post_layernorm.': f'{vision}post_layernorm.',
        'vision_tower.': f'{vision}embeddings.',
        'multi_modal_projector.': f'{paligemma}multi_modal_projector.linear.',
        'embed_tokens.': 'paligemma_with_expert.paligemma.lm_head.',
        'language_model.': f'{paligemma}language_model.layers.',
        'expert.': f'{expert}layers.',
        'norm.': f'{expert}norm.',
        '': ''}
    found = {}
    for name, weight in checkpoint.named_weights(network).items():
        prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
        name = prefixes[prefix] + name.removeprefix(prefix)
        if 'vision_model' in name:
            name = name.replace('.o_proj.', '.out_proj.')
        found[name] = weight
    return found


@pytest.mark.parametrize('wrapped', ['', 'model.'], ids=['openpi', 'lerobot'])
def test_published_checkpoints_fill_the_network(pi0, tmp_path, wrapped):
    weights = {wrapped + name: weight.contiguous()
               for name, weight in published_names(pi0.network).items()}
    weights[f'{wrapped}paligemma_with_expert.gemma_expert.lm_head.weight'] = torch.ones(1)
    weights[f'{wrapped}paligemma_with_expert.paligemma.model.language_model.norm.weight'] = (
        torch.ones(1))
    save_file(weights, tmp_path / 'model.safetensors')
    (tmp_path / 'config.json').write_text(json.dumps({}))
    network = on_meta(pi0.config).requires_grad_(False)
    checkpoint.load(tmp_path, network, torch.device('cpu'),
                    KEYS[pi0.config.architecture.removesuffix('_small')])
    found = checkpoint.named_weights(network)
    for name, weight in checkpoint.named_weights(pi0.network).items():
        torch.testing.assert_close(found[name], weight, atol=0, rtol=0, msg=name)
