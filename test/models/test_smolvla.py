# SPDX-License-Identifier: Apache-2.0
"""SmolVLA as the engine and a checkpoint see it."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import save_file
import torch

from robion_ros.models import checkpoint, layers, registry
from robion_ros.models.smolvla import Smolvla, SmolvlaNetwork
from robion_ros.models.smolvla_config import CONFIGS, KEYS, SMOLVLA

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


@pytest.mark.parametrize('name, dtype', [
    *((name, torch.bfloat16) for name in sorted(CONFIGS)), ('smolvla_small', torch.float32)])
def test_the_stages_never_look_at_values(name, dtype, observe, stack, only_meta):
    config = replace(CONFIGS[name], cameras=2, state_size=7)
    model = Smolvla(config, on_meta(config).requires_grad_(False).to_layers_dtype(dtype))
    inputs = {key: tensor.to('meta') for key, tensor in stack(model, observe()).items()}
    noise = model.noise([0]).to('meta')
    with only_meta():
        context = model.vlm(inputs)
        actions = model.adit(context, noise)
    for kind in ('joint', 'prefix'):
        assert context[kind].dtype == dtype and context[kind].shape[4] % 8 == 0
        assert context[kind].is_contiguous()
    assert actions.shape == noise.shape and actions.dtype == torch.float32


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


@pytest.mark.parametrize('change, message', [
    ({'checkpoint': 'somewhere'}, 'checkpoint: smolvla_small is served with random weights alone'),
    ({'joints': tuple(f'j{index}' for index in range(33))}, 'joints: are 33, .* at most 32'),
    ({'actions': tuple(f'a{index}' for index in range(33))}, 'actions: are 33, .* at most 32'),
], ids=['checkpoint', 'joints', 'actions'])
def test_what_the_model_cannot_be_is_refused(model_config, change, message):
    with pytest.raises(ValueError, match=message):
        registry.load(model_config(architecture='smolvla_small', **change), 'cpu')


def published_names(network: SmolvlaNetwork) -> dict[str, torch.Tensor]:
    """Return weights by lerobot's names, written from the other end."""
    both = 'model.vlm_with_expert.'
    vision = f'{both}vlm.model.vision_model.'
    prefixes = {
        'vision_tower.layers.': f'{vision}encoder.layers.',
        'vision_tower.post_layernorm.': f'{vision}post_layernorm.',
        'vision_tower.': f'{vision}embeddings.',
        'connector.': f'{both}vlm.model.connector.modality_projection.proj.',
        'embed_tokens.': f'{both}vlm.model.text_model.embed_tokens.',
        'language_model.': f'{both}vlm.model.text_model.layers.',
        'expert.': f'{both}lm_expert.layers.',
        'norm.': f'{both}lm_expert.norm.',
        '': 'model.'}
    found = {}
    for name, weight in checkpoint.named_weights(network).items():
        prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
        name = prefixes[prefix] + name.removeprefix(prefix)
        if 'vision_model' in name:
            name = name.replace('.o_proj.', '.out_proj.')
        found[name] = weight
    return found


@pytest.mark.parametrize('embeddings', ['embed_tokens and lm_head', 'lm_head alone'])
def test_published_checkpoints_fill_the_network(smolvla, tmp_path, embeddings):
    weights = {name: weight.contiguous() for name, weight in
               published_names(smolvla.network).items()}
    head, words = (f'model.vlm_with_expert.vlm.{name}.weight' for name in
                   ('lm_head', 'model.text_model.embed_tokens'))
    weights[head] = torch.zeros(1)
    if embeddings == 'lm_head alone':
        weights[head] = weights.pop(words)
    weights['model.vlm_with_expert.vlm.model.text_model.norm.weight'] = torch.ones(1)
    save_file(weights, tmp_path / 'model.safetensors')
    network = on_meta(smolvla.config).requires_grad_(False)
    checkpoint.load(tmp_path, network, torch.device('cpu'), KEYS)
    found = checkpoint.named_weights(network)
    for name, weight in checkpoint.named_weights(smolvla.network).items():
        torch.testing.assert_close(found[name], weight, atol=0, rtol=0, msg=name)
