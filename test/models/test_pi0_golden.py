# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5 from checkpoints give what lerobot and openpi give with them, stage by stage.

The numbers were made by those two: see test/golden/make_pi0.py and make_openpi.py. What one more
rounding moves is about 1e-6; the smallest mistake known, times in float64, moves 8e-6.
"""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file
import torch

from robion_ros.core import Observation
from robion_ros.models import layers, registry

from .golden import CAMERAS, FOLDER, Golden, model_of, openpi_folder

EXACT = {'atol': 1e-5, 'rtol': 1e-5}
NUMBERS = range(3)


@pytest.fixture(scope='module', params=['pi0', 'pi05'])
def golden(request) -> Golden:
    return Golden(request.param)


@pytest.fixture(scope='module')
def models(golden):
    """Return a model for the robots of each observation; the second has a camera less."""
    return [registry.load(model_of(golden.kind, golden.cameras(number)), 'cpu')
            for number in NUMBERS]


def batched(model, observation: Observation) -> dict[str, torch.Tensor]:
    return {name: tensor[None] for name, tensor in model.preprocess(observation).items()}


def test_sizes_are_those_of_the_checkpoint(golden, models):
    spec = models[0].spec
    assert (spec.cameras, spec.state_size, spec.action_size) == (len(CAMERAS[golden.kind]), 8, 7)
    assert spec.horizon == (6 if golden.kind == 'pi0' else 5)
    assert spec.step_duration == 0.05
    assert models[1].spec.cameras == spec.cameras - 1


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_and_states_are_the_reference_s(golden, models, number):
    inputs = models[number].preprocess(golden.observation(number))
    assert torch.equal(inputs['tokens'], golden(number, 'tokens').long())
    assert torch.equal(inputs['token_mask'], golden(number, 'token_mask'))
    if golden.kind == 'pi0':
        torch.testing.assert_close(inputs['state'][:8], golden(number, 'state'), atol=0, rtol=0)
        assert not inputs['state'][8:].any()


def test_pictures_are_the_reference_s(golden, models):
    images = models[0].preprocess(golden.observation(0))['images']
    seen = (images / 127.5 - 1).permute(0, 3, 1, 2)
    torch.testing.assert_close(seen, golden(0, 'images'), atol=1e-6, rtol=0)


@pytest.mark.parametrize('number', NUMBERS)
def test_keys_and_values_of_the_prefix_are_the_reference_s(golden, models, number):
    context = models[number].vlm(batched(models[number], golden.observation(number)))
    # Missing cameras come last there, and are not computed here.
    found = context['cache'][0][..., context['valid'][0], :]
    wanted = golden(number, 'cache')[..., golden(number, 'valid'), :]
    torch.testing.assert_close(found, wanted, **EXACT)


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
    rows[1]['image_mask'] = torch.tensor([True] * (len(rows[0]['images']) - 1) + [False])
    inputs = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    noise = torch.stack([golden(number, 'noise') for number in NUMBERS])
    together = models[0].adit(models[0].vlm(inputs), noise)
    torch.testing.assert_close(together, golden.tensors['batch.chunk'], **EXACT)
    for number in NUMBERS:
        torch.testing.assert_close(together[number, :, :7], golden(number, 'chunk'), **EXACT)


def test_cameras_are_told_by_name_whatever_their_order(golden):
    names = CAMERAS[golden.kind][::-1]
    model = registry.load(model_of(golden.kind, names), 'cpu')
    chunk = model.adit(model.vlm(batched(model, golden.observation(0, names))),
                       golden(0, 'noise')[None])[0]
    torch.testing.assert_close(chunk[:, :7], golden(0, 'chunk'), **EXACT)


@pytest.fixture(scope='module')
def openpi():
    return load_file(FOLDER / 'openpi.safetensors')


OPENPI = {'pi0': ('pi0', {}), 'pi05': ('pi05', {}),
          'pi05_plain': ('pi05', {'discrete_state_input': False})}


@pytest.mark.parametrize('number', NUMBERS)
@pytest.mark.parametrize('name', OPENPI)
def test_openpi_s_checkpoints_give_what_openpi_gives(openpi, tmp_path, name, number):
    kind, fields = OPENPI[name]
    golden = Golden('pi0')  # The observations of all of them.
    folder = openpi_folder(tmp_path / 'converted', kind, **fields)
    model = registry.load(model_of(kind, golden.cameras(number), checkpoint=str(folder),
                                   tokenizer=''), 'cpu')
    observation = golden.observation(number)
    inputs = batched(model, observation)
    assert torch.equal(inputs['tokens'][0], openpi[f'{name}.{number}.tokens'].long())
    if kind == 'pi0':
        torch.testing.assert_close(inputs['state'][0], openpi[f'{name}.{number}.state'],
                                   atol=0, rtol=1e-6)
    noise = golden(number, 'noise')[None, :model.spec.horizon]
    actions = model.postprocess(model.adit(model.vlm(inputs), noise)[0], observation)
    np.testing.assert_allclose(actions, openpi[f'{name}.{number}.actions'], atol=3e-5, rtol=1e-5)


def test_openpi_s_pictures_are_pillow_s(openpi, tmp_path):
    golden = Golden('pi0')
    folder = openpi_folder(tmp_path / 'converted', 'pi0')
    model = registry.load(model_of('pi0', CAMERAS['pi0'], checkpoint=str(folder), tokenizer=''),
                          'cpu')
    images = model.preprocess(golden.observation(0))['images']
    assert torch.equal(images, openpi['images'])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no GPU')
def test_bfloat16_on_a_gpu_is_near_the_reference(golden):
    model = registry.load(model_of(golden.kind, golden.cameras(0)), 'cuda:0')
    inputs = batched(model, golden.observation(0))
    context = model.vlm({name: tensor.cuda() for name, tensor in inputs.items()})
    chunk = model.adit(context, golden(0, 'noise')[None].cuda())[0].cpu()
    difference = (chunk[:, :7] - golden(0, 'chunk')).abs()
    assert difference.max() < 0.1 and difference.mean() < 0.02
    weights = model.network.language_model[0]
    assert weights.mlp.down_proj.weight.dtype == torch.bfloat16
    assert weights.input_layernorm.weight.dtype == torch.float32


def test_the_time_is_that_of_the_code_a_checkpoint_comes_from(models):
    config = models[0].config
    added = replace(config, times_added_up=True, steps=10).times
    assert added[:2] == (1.0, float(np.float32(0.9)))
    assert added != replace(config, steps=10).times
    np.testing.assert_allclose(added, replace(config, steps=10).times, atol=1e-6)
    assert layers.time_embedding(added, 8).shape == (10, 8)
