# SPDX-License-Identifier: Apache-2.0
"""Xiaomi-Robotics-0 as the engine sees it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from robion_ros.bench.settings import SLOS
from robion_ros.models import registry
from robion_ros.models.xiaomi import Xiaomi, XiaomiNetwork
from robion_ros.models.xiaomi_config import CONFIGS, XIAOMI

PROMPTS = 'pick', 'put the blue ball into the box', 'öffne die Tür'
PUBLISHED = 4.7e9
"""Parameters, as the published model is said to have."""


def on_meta(config) -> XiaomiNetwork:
    with torch.device('meta'):
        return XiaomiNetwork(config)


@pytest.fixture(scope='module')
def model(model_config) -> Xiaomi:
    """Return a small model whose weights are all away from where training starts."""
    made = registry.load(model_config(architecture='xiaomi_robotics_0_small'), 'cpu')
    generator = torch.Generator().manual_seed(1)
    for weight in made.network.parameters():
        weight += 0.2 * torch.randn(weight.shape, generator=generator) / weight[0].numel() ** 0.5
    return Xiaomi(made.config, made.network)


def test_the_full_model_has_as_many_weights_as_the_published_one():
    count = sum(weight.numel() for weight in on_meta(XIAOMI).parameters())
    assert count == pytest.approx(PUBLISHED, rel=1e-2)


def test_the_full_model_sees_as_many_tokens_as_the_published_one():
    assert XIAOMI.grids == ((8, 8), (8, 8)) and XIAOMI.prefix_tokens == 256
    assert XIAOMI.expert_width == 1024 and XIAOMI.times == (0, 200, 400, 600, 800)


def test_it_has_the_deadline_of_the_paper():
    assert SLOS[XIAOMI.architecture] == 0.117


def test_actions_have_the_shape_and_kind_of_the_spec(model, observe, answer):
    actions = answer(model, observe())
    assert actions.shape == (model.spec.horizon, model.spec.action_size) == (10, 7)
    assert actions.dtype == np.float32 and np.isfinite(actions).all()
    assert 0.1 < actions.std() < 5


@pytest.mark.parametrize('change', [
    lambda o: replace(o, images=(o.images[0], 255 - o.images[1])),
    lambda o: replace(o, images=o.images[::-1]),
    lambda o: replace(o, state=o.state + np.eye(7, dtype=np.float32)[6]),
    lambda o: replace(o, prompt='pick up the red cub'),
], ids=['wrist image', 'images swapped', 'last joint', 'prompt'])
def test_actions_depend_on_everything_observed(model, observe, answer, change):
    before, after = answer(model, observe()), answer(model, change(observe()))
    assert np.abs(before - after).max() > 1e-3


def test_a_row_does_not_depend_on_the_others_in_its_batch(model, observe, stack):
    inputs, seeds = stack(model, *(observe(*each) for each in enumerate(PROMPTS))), [5, 6, 7]
    together = model.adit(model.vlm(inputs), model.noise(seeds))
    for row, seed in enumerate(seeds):
        alone = {name: tensor[row:row + 1] for name, tensor in inputs.items()}
        actions = model.adit(model.vlm(alone), model.noise([seed]))[0]
        torch.testing.assert_close(together[row], actions, atol=1e-5, rtol=1e-5)


def test_padding_of_the_prompt_changes_nothing(model, observe, answer):
    wider = Xiaomi(replace(model.config, prompt_tokens=model.config.prompt_tokens + 21),
                   model.network)
    np.testing.assert_allclose(answer(model, observe()), answer(wider, observe()), atol=1e-5)


def test_cameras_of_different_sizes_are_seen_one_after_the_other(model, observe, answer):
    sizes = (64, 64), (32, 96)
    for order in (sizes, sizes[::-1]):
        other = Xiaomi(replace(model.config, pictures=order), model.network)
        assert other.config.picture_tokens == 7
        assert np.isfinite(answer(other, observe())).all()


def test_the_adit_stage_leaves_the_hand_over_as_it_was(model, observe, stack):
    context = model.vlm(stack(model, observe()))
    before = {name: tensor.clone() for name, tensor in context.items()}
    first = model.adit(context, model.noise([1]))
    for name, tensor in before.items():
        torch.testing.assert_close(context[name], tensor, atol=0, rtol=0)
    torch.testing.assert_close(model.adit(context, model.noise([1])), first, atol=0, rtol=0)


def test_only_the_last_layers_cross_the_stages(model, observe, stack):
    c, context = model.config, model.vlm(stack(model, observe()))
    assert context['cache'].shape == (1, 3, 2, c.kv_heads, c.prefix_tokens, c.head_size)
    assert set(context) == {'cache', 'valid', 'next', 'state'}


class OnlyMeta(TorchDispatchMode):
    """Raises when a tensor with values, of which a device would have to wait, appears."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor):
                assert leaf.is_meta, function
        return result


@pytest.mark.parametrize('name, dtype', [
    *((name, torch.bfloat16) for name in sorted(CONFIGS)),
    ('xiaomi_robotics_0_small', torch.float32)])
def test_the_stages_never_look_at_values(name, dtype, observe, stack):
    config = replace(CONFIGS[name], state_size=7)
    model = Xiaomi(config, on_meta(config).requires_grad_(False).to_layers_dtype(dtype))
    inputs = {key: tensor.to('meta') for key, tensor in stack(model, observe()).items()}
    noise = model.noise([0]).to('meta')
    with OnlyMeta():
        context = model.vlm(inputs)
        actions = model.adit(context, noise)
        model.adit_step(model.adit_begin(context), noise, torch.zeros(1, dtype=torch.int64,
                                                                      device='meta'))
    assert context['cache'].dtype == dtype
    assert actions.shape == noise.shape and actions.dtype == torch.float32


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


def test_random_weights_depend_on_the_seed_alone(model_config):
    first, again, other = (
        registry.load(model_config(architecture='xiaomi_robotics_0_small', seed=seed),
                      'cpu').network.sink.weight for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize('change, message', [
    ({'checkpoint': 'somewhere'}, 'checkpoint: xiaomi_.*_small is served with random weights'),
    ({'joints': tuple(f'j{index}' for index in range(33))}, 'joints: are 33, .* at most 32'),
    ({'actions': tuple(f'a{index}' for index in range(33))}, 'actions: are 33, .* at most 32'),
], ids=['checkpoint', 'joints', 'actions'])
def test_what_the_model_cannot_be_is_refused(model_config, change, message):
    with pytest.raises(ValueError, match=message):
        registry.load(model_config(architecture='xiaomi_robotics_0_small', **change), 'cpu')
