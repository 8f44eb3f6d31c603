# SPDX-License-Identifier: Apache-2.0
"""What holds for the two stages of every architecture."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.models import registry

ARCHITECTURES = ('tiny', 'pi0_small', 'pi05_small', 'smolvla_small', 'gr00t_n1_5_small',
                 'xiaomi_robotics_0_small')
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


def test_the_adit_stage_leaves_the_hand_over_as_it_was(model, observe, stack) -> None:
    context = model.vlm(stack(model, observe()))
    before = {name: tensor.clone() for name, tensor in context.items()}
    first = model.adit(context, model.noise([1]))
    for name, tensor in before.items():
        torch.testing.assert_close(context[name], tensor, atol=0, rtol=0)
    torch.testing.assert_close(model.adit(context, model.noise([1])), first, atol=0, rtol=0)


def test_random_weights_depend_on_the_seed_alone(architecture, model_config) -> None:
    first, again, other = (
        dict(registry.load(model_config(architecture=architecture, seed=seed),
                           'cpu').network.named_parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
