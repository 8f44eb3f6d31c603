# SPDX-License-Identifier: Apache-2.0
"""
SmolVLA from a checkpoint gives what lerobot gives with it, stage by stage.

The numbers were made by lerobot: see test/golden/make_smolvla.py. Both agree to 2e-7 of chunks of
order one; the smallest mistake tried, another epsilon in the norms, moves them by 1e-4.
"""

import numpy as np
import pytest
import torch

from robion_ros.models import registry

from .golden import Golden, JOINTS, model_of

EXACT = {'atol': 1e-5, 'rtol': 1e-5}
NUMBERS = range(3)


@pytest.fixture(scope='module')
def golden() -> Golden:
    return Golden('smolvla')


def load(cameras, **changes):
    return registry.load(model_of('smolvla', cameras, joints=JOINTS[:6], tokenizer='', **changes),
                         'cpu')


@pytest.fixture(scope='module')
def models(golden):
    """Return a model for the robots of each observation; the second has a camera less."""
    return [load(golden.cameras(number)) for number in NUMBERS]


def batched(model, observation) -> dict[str, torch.Tensor]:
    return {name: tensor[None] for name, tensor in model.preprocess(observation).items()}


def existing(tensor: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Return keys and values [..., K, D] of the tokens that exist."""
    return tensor[..., valid, :]


def test_sizes_are_those_of_the_checkpoint(models):
    config, spec = models[0].config, models[0].spec
    assert (spec.cameras, spec.state_size, spec.action_size, spec.horizon) == (3, 6, 7, 6)
    assert (config.heads, config.kv_heads, config.head_size) == (4, 2, 64)
    assert (config.image_size, config.patch_size, config.shuffle, config.layers) == (64, 8, 4, 4)
    assert models[1].spec.cameras == 2


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_and_states_are_the_reference_s(golden, models, number):
    inputs = models[number].preprocess(golden.observation(number))
    assert inputs['tokens'].shape == (48,)
    assert golden(number, 'token_mask').all()
    assert torch.equal(inputs['tokens'][inputs['token_mask']], golden(number, 'tokens').long())
    torch.testing.assert_close(inputs['state'][:6], golden(number, 'state'), atol=0, rtol=0)
    assert not inputs['state'][6:].any()


def test_pictures_are_the_reference_s(golden, models):
    images = models[0].preprocess(golden.observation(0))['images']
    seen = (images / 127.5 - 1).permute(0, 3, 1, 2)
    torch.testing.assert_close(seen, golden(0, 'images'), atol=1e-6, rtol=0)


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_of_the_prefix_are_the_reference_s(golden, models, number):
    found, valid = models[number].prefix(batched(models[number], golden.observation(number)))
    # Missing cameras come after the present ones there, and are not computed here.
    wanted = golden(number, 'prefix')[golden(number, 'valid')]
    torch.testing.assert_close(found[valid], wanted, **EXACT)


def test_keys_and_values_of_the_prefix_are_the_reference_s(golden, models):
    context = models[1].vlm(batched(models[1], golden.observation(1)))
    there, here = golden(1, 'valid'), context['valid'][0]
    torch.testing.assert_close(existing(context['joint'][0], here),
                               existing(golden(1, 'cache')[::2], there), **EXACT)
    torch.testing.assert_close(existing(context['prefix'][0], here),
                               existing(golden(1, 'cross'), there), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
def test_the_velocity_at_each_step_is_the_reference_s(golden, models, number, monkeypatch):
    model, velocities = models[number], []
    velocity = model.velocity

    def keep(*arguments):
        velocities.append(velocity(*arguments))
        return velocities[-1]
    monkeypatch.setattr(model, 'velocity', keep)
    context = model.vlm(batched(model, golden.observation(number)))
    model.adit(context, golden(number, 'noise')[None])
    torch.testing.assert_close(torch.cat(velocities), golden(number, 'velocities'), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
def test_the_chunk_and_the_robot_s_actions_are_the_reference_s(golden, models, number):
    model, observation = models[number], golden.observation(number)
    chunk = model.adit(model.vlm(batched(model, observation)), golden(number, 'noise')[None])[0]
    torch.testing.assert_close(chunk[:, :7], golden(number, 'chunk'), **EXACT)
    # In the robot's units a rounding of the chunk is as large as the spread of its actions, 30.
    np.testing.assert_allclose(model.postprocess(chunk, observation), golden(number, 'actions'),
                               atol=3e-5, rtol=1e-5)


def test_a_batch_of_different_prompts_and_cameras_gives_what_each_gives_alone(golden, models):
    rows = [models[number].preprocess(golden.observation(number)) for number in NUMBERS]
    # The robot without a camera has anything in its place, as long as it is masked.
    rows[1] = dict(rows[1])
    rows[1]['images'] = torch.cat((rows[1]['images'], 77 * torch.ones_like(rows[0]['images'][:1])))
    rows[1]['image_mask'] = torch.tensor([True, True, False])
    inputs = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    noise = torch.stack([golden(number, 'noise') for number in NUMBERS])
    together = models[0].adit(models[0].vlm(inputs), noise)
    torch.testing.assert_close(together, golden.tensors['batch.chunk'], **EXACT)
    for number in NUMBERS:
        torch.testing.assert_close(together[number, :, :7], golden(number, 'chunk'), **EXACT)


def test_cameras_are_told_by_name_whatever_their_order(golden):
    names = golden.cameras(0)[::-1]
    model = load(names)
    chunk = model.adit(model.vlm(batched(model, golden.observation(0, names))),
                       golden(0, 'noise')[None])[0]
    torch.testing.assert_close(chunk[:, :7], golden(0, 'chunk'), **EXACT)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no GPU')
def test_bfloat16_on_a_gpu_is_near_the_reference(golden):
    model = registry.load(model_of('smolvla', golden.cameras(0), joints=JOINTS[:6], tokenizer=''),
                          'cuda:0')
    inputs = batched(model, golden.observation(0))
    context = model.vlm({name: tensor.cuda() for name, tensor in inputs.items()})
    chunk = model.adit(context, golden(0, 'noise')[None].cuda())[0].cpu()
    difference = (chunk[:, :7] - golden(0, 'chunk')).abs()
    assert difference.max() < 0.1 and difference.mean() < 0.02
    layer = model.network.language_model[0]
    assert layer.mlp.down_proj.weight.dtype == torch.bfloat16
    assert layer.input_layernorm.weight.dtype == torch.float32
