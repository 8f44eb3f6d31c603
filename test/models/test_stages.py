# SPDX-License-Identifier: Apache-2.0
"""What holds for the two stages of every architecture."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros import architectures
from robion_ros.models import registry
from robion_ros.models.gr00t import Gr00t
from robion_ros.models.pi0 import Pi0
from robion_ros.models.protocol import Stepped
from robion_ros.models.smolvla import Smolvla
from robion_ros.models.tiny import Tiny
from robion_ros.models.xiaomi import Xiaomi

ARCHITECTURES = ('tiny', 'pi0_small', 'pi05_small', 'smolvla_small', 'gr00t_n1_5_small',
                 'xiaomi_robotics_0_small')
KINDS = {'tiny': Tiny, 'pi0': Pi0, 'pi05': Pi0, 'smolvla': Smolvla, 'gr00t_n1_5': Gr00t,
         'xiaomi_robotics_0': Xiaomi}
PROMPTS = 'pick', 'put the blue ball into the box', 'öffne die Tür'
MASKS = {
    # It wants the first camera; what of another one is masked is still a token.
    'gr00t_n1_5_small': [[True, True], [True, False], [True, True]],
    'xiaomi_robotics_0_small': None,
}
"""Cameras that each row of a batch has; None: all it must have."""
SOME = [[True, True], [True, False], [False, True]]


@pytest.fixture(scope='module', params=ARCHITECTURES)
def architecture(request) -> str:
    return request.param


@pytest.fixture(scope='module')
def model(architecture, moved, tiny):
    return tiny if architecture == 'tiny' else moved(architecture)


def with_config(model, **changes):
    """Return a model of the same weights."""
    return type(model)(replace(model.config, **changes), model.network)


def test_actions_have_the_shape_and_kind_of_the_spec(model, observe, answer) -> None:
    actions = answer(model, observe())
    assert actions.shape == (model.spec.horizon, model.spec.action_size)
    assert actions.shape[1] == 7
    assert actions.dtype == np.float32 and np.isfinite(actions).all()
    assert 0.1 < actions.std() < 5


@pytest.mark.parametrize('change', [
    lambda o: replace(o, images=(o.images[0], 255 - o.images[1])),
    lambda o: replace(o, images=(255 - o.images[0], o.images[1])),
    lambda o: replace(o, images=o.images[::-1]),
    lambda o: replace(o, state=o.state + np.eye(7, dtype=np.float32)[6]),
    lambda o: replace(o, prompt='pick up the red cub'),
], ids=['wrist image', 'front image', 'images swapped', 'last joint', 'prompt'])
def test_actions_depend_on_everything_observed(model, observe, answer, change) -> None:
    before, after = answer(model, observe()), answer(model, change(observe()))
    assert np.abs(before - after).max() > 1e-3


def test_a_row_does_not_depend_on_the_others_in_its_batch(architecture, model, observe,
                                                          stack) -> None:
    inputs, seeds = stack(model, *(observe(*each) for each in enumerate(PROMPTS))), [5, 6, 7]
    if mask := MASKS.get(architecture, SOME):
        inputs['image_mask'] = torch.tensor(mask)
    together = model.adit(model.vlm(inputs), model.noise(seeds))
    for row, seed in enumerate(seeds):
        alone = {name: tensor[row:row + 1] for name, tensor in inputs.items()}
        actions = model.adit(model.vlm(alone), model.noise([seed]))[0]
        torch.testing.assert_close(together[row], actions, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('more', [1, 5, 21])
def test_padding_of_the_prompt_changes_nothing(model, observe, answer, more) -> None:
    wider = with_config(model, prompt_tokens=model.config.prompt_tokens + more)
    np.testing.assert_allclose(answer(model, observe()), answer(wider, observe()), atol=1e-5)


def test_a_masked_camera_is_as_if_it_were_not_there(architecture, model, observe, stack) -> None:
    if architecture in MASKS:
        pytest.skip('the architecture has no such camera')
    observation = observe()
    inputs = stack(model, observation) | {'image_mask': torch.tensor([[False, True]])}
    other = inputs | {'images': torch.cat((255 - inputs['images'][:, :1],
                                           inputs['images'][:, 1:]), 1)}
    single = with_config(model, cameras=1)
    without = stack(single, replace(observation, images=observation.images[1:]))
    noise = model.noise([3])
    actions = model.adit(model.vlm(inputs), noise)
    torch.testing.assert_close(model.adit(model.vlm(other), noise), actions, atol=0, rtol=0)
    torch.testing.assert_close(single.adit(single.vlm(without), noise), actions, atol=1e-5,
                               rtol=1e-5)


def test_the_last_token_of_a_full_prompt_has_a_place(model, observe, stack) -> None:
    inputs = {name: torch.ones_like(tensor) if tensor.dtype == torch.bool else tensor
              for name, tensor in stack(model, observe()).items()}
    assert model.adit(model.vlm(inputs), model.noise([1])).isfinite().all()


def test_the_adit_stage_leaves_the_hand_over_as_it_was(model, observe, stack) -> None:
    context = model.vlm(stack(model, observe()))
    before = {name: tensor.clone() for name, tensor in context.items()}
    first = model.adit(context, model.noise([1]))
    for name, tensor in before.items():
        torch.testing.assert_close(context[name], tensor, atol=0, rtol=0)
    torch.testing.assert_close(model.adit(context, model.noise([1])), first, atol=0, rtol=0)


@pytest.mark.parametrize('architecture, device, batch', [
    ('tiny', 'cpu', 1), ('tiny', 'cpu', 2),
    *((name, 'cuda', 1) for name in architectures.ARCHITECTURES if name != 'tiny'),
    *((name, 'cpu', 1) for name in ARCHITECTURES if name != 'tiny')])
def test_the_stages_never_look_at_values(architecture, device, batch, model_config, observe, stack,
                                         only_meta):
    module = registry.find(architecture)
    source = module.configure(model_config(architecture=architecture))
    # Every step does the same: two of them stand for all.
    model = KINDS[architecture.removesuffix('_small')](
        replace(source.sizes, steps=2), module.blank(source, torch.device(device)))
    inputs = {name: tensor.to('meta') for name, tensor in stack(
        model, *[observe()] * batch).items()}
    noise = model.noise(range(batch)).to('meta')
    with only_meta():
        context = model.vlm(inputs)
        chunks = [model.adit(context, noise)]
        if isinstance(model, Stepped):
            steps = torch.zeros(batch, dtype=torch.int64, device='meta')
            chunks.append(model.adit_step(model.adit_begin(context), noise, steps))
    for actions in chunks:
        assert actions.shape == noise.shape and actions.dtype == torch.float32
    handed = {'Smolvla': ('joint', 'prefix'), 'Gr00t': ('cache', 'state')}.get(
        type(model).__name__, ('cache',))
    for name in handed:
        assert context[name].dtype == (torch.bfloat16 if device == 'cuda' else torch.float32)
    # Kernels of attention want keys in eights, which those two have to fill up.
    if isinstance(model, Smolvla | Gr00t):
        keys = [context[name] for name in handed if name != 'state']
        assert all(tensor.shape[-2] % 8 == 0 and tensor.is_contiguous() for tensor in keys)


def test_random_weights_depend_on_the_seed_alone(architecture, model_config) -> None:
    first, again, other = (
        dict(registry.load(model_config(architecture=architecture, seed=seed),
                           'cpu').network.named_parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
