# SPDX-License-Identifier: Apache-2.0
"""One denoising step at a time gives what the whole ADiT stage gives."""

import pytest
import torch

from robion_ros.models import registry
from robion_ros.models.protocol import Stepped

ARCHITECTURES = ('tiny', 'pi0_small', 'pi05_small', 'smolvla_small', 'gr00t_n1_5_small',
                 'xiaomi_robotics_0_small')
PROMPTS = 'pick', 'put the blue ball into the box', 'wait'


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, model_config):
    loaded = registry.load(model_config(architecture=request.param), 'cpu')
    assert isinstance(loaded, Stepped)
    return loaded


@pytest.fixture
def context(model, observe, stack):
    return model.vlm(stack(model, *(observe(seed, prompt)
                                    for seed, prompt in enumerate(PROMPTS))))


def test_all_steps_are_the_whole_stage(model, context) -> None:
    actions, steps = model.noise([1, 2, 3]), torch.zeros(3, dtype=torch.int64)
    expected = model.adit(context, actions)
    begun = model.adit_begin(context)
    for _ in range(model.denoising_steps):
        actions = model.adit_step(begun, actions, steps)
        steps = steps + 1
    torch.testing.assert_close(actions, expected, atol=1e-5, rtol=1e-5)


def test_rows_at_different_steps_do_not_see_each_other(model, context) -> None:
    noise = model.noise([1, 2, 3])
    begun = model.adit_begin(context)
    paths = [[noise[row:row + 1]] for row in range(3)]
    for row, path in enumerate(paths):
        alone = {name: tensor[row:row + 1].clone() for name, tensor in begun.items()}
        for step in range(model.denoising_steps):
            path.append(model.adit_step(alone, path[-1], torch.tensor([step])))
    steps = torch.tensor([model.denoising_steps - 1, 0, 2])
    together = model.adit_step(begun, torch.cat([path[step] for path, step in
                                                 zip(paths, steps.tolist(), strict=True)]), steps)
    for row, (path, step) in enumerate(zip(paths, steps.tolist(), strict=True)):
        torch.testing.assert_close(together[row:row + 1], path[step + 1], atol=1e-5, rtol=1e-5)


def test_the_context_stays_as_it_was(model, context) -> None:
    before = {name: tensor.clone() for name, tensor in context.items()}
    begun = {name: tensor.clone() for name, tensor in model.adit_begin(context).items()}
    model.adit_step(begun, model.noise([1, 2, 3]), torch.tensor([0, 1, 2]))
    for name, tensor in before.items():
        torch.testing.assert_close(context[name], tensor, atol=0, rtol=0)


def to_meta(module: torch.nn.Module | torch.Tensor):
    return module.to('meta')


def test_a_step_never_looks_at_values(model, context, only_meta) -> None:
    begun = {name: to_meta(tensor) for name, tensor in model.adit_begin(context).items()}
    for name, value in vars(model).items():
        if isinstance(value, torch.Tensor):
            setattr(model, name, to_meta(value))
    to_meta(model.network)
    actions, steps = to_meta(model.noise([1, 2, 3])), to_meta(torch.zeros(3, dtype=torch.int64))
    with only_meta():
        assert model.adit_step(begun, actions, steps).shape == actions.shape
