# SPDX-License-Identifier: Apache-2.0
"""
Xiaomi-Robotics-0 from a checkpoint gives what its own code gives with it, stage by stage.

The numbers were made by that code: see test/golden/make_xiaomi.py.
"""

from dataclasses import dataclass
from functools import cached_property
import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file
import torch

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import registry
from robion_ros.models.pictures import cropped, stretched
from robion_ros.models.qwen3_vl import ABSENT

from .golden import FOLDER

EXACT = {'atol': 1e-5, 'rtol': 1e-5}
NUMBERS = range(3)
CAMERAS = 'base', 'wrist_left'
JOINTS = tuple(f'joint_{index}' for index in range(8))
ACTIONS = 'x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper'


@dataclass(frozen=True)
class Golden:
    """What the reference gave."""

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        return load_file(FOLDER / 'xiaomi.safetensors')

    def __call__(self, number: int, name: str) -> torch.Tensor:
        return self.tensors[f'{number}.{name}']

    def cameras(self, number: int) -> tuple[str, ...]:
        return tuple(name for name in CAMERAS if f'{number}.{name}' in self.tensors)

    def observation(self, number: int, names: tuple[str, ...] = ()) -> Observation:
        with safe_open(FOLDER / 'xiaomi.safetensors', 'pt') as file:
            prompt = json.loads(file.metadata()['prompts'])[number]
        images = tuple(self(number, name).numpy() for name in names or self.cameras(number))
        return Observation(images, self(number, 'state').numpy(), prompt, 0)


def model_of(cameras: tuple[str, ...] = CAMERAS, **changes: object) -> ModelConfig:
    """Return a model of a factory file for the robots of the golden observations."""
    values = {'cameras': dict.fromkeys(cameras, CameraConfig()), 'joints': JOINTS, 'rate': 2.0,
              'slo': 0.1, 'capacity': 8, 'actions': ACTIONS, 'step_duration': 0.05,
              'checkpoint': str(FOLDER / 'xiaomi')}
    return ModelConfig('xiaomi_robotics_0', **(values | changes))


def batched(model, observation: Observation) -> dict[str, torch.Tensor]:
    return {name: tensor[None] for name, tensor in model.preprocess(observation).items()}


@pytest.fixture(scope='module')
def golden() -> Golden:
    return Golden()


@pytest.fixture(scope='module')
def models(golden):
    """Return a model for the robots of each observation; the second has a camera less."""
    return [registry.load(model_of(golden.cameras(number)), 'cpu') for number in NUMBERS]


def read_order(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return where the tokens that exist stand here, in the order that they are read in."""
    order = inputs['order'].flatten()
    return order.argsort()[:int((order < ABSENT).sum())]


def test_sizes_are_those_of_the_checkpoint(models):
    spec = models[0].spec
    assert (spec.cameras, spec.state_size, spec.action_size, spec.horizon) == (2, 8, 7, 6)
    assert spec.step_duration == 0.05
    assert models[1].spec.cameras == 1


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_stand_where_the_reference_has_them(golden, models, number):
    model, c = models[number], models[number].config
    inputs = model.preprocess(golden.observation(number))
    whole = torch.cat((torch.full((c.picture_tokens,), c.image_token), inputs['tokens']))
    assert torch.equal(whole[read_order(inputs)], golden(number, 'tokens').long())
    assert [[1, 2 * rows, 2 * columns] for rows, columns in c.grids] == (
        golden(number, 'grids').tolist())


def test_pictures_are_the_reference_s(golden, models):
    model, inputs = models[0], models[0].preprocess(golden.observation(0))
    patches = []
    for camera, (rows, columns) in enumerate(model.config.grids):
        picture = inputs[f'picture_{camera}'].reshape(rows, 2, 8, columns, 2, 8, 3)
        patches.append(picture.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, 64))
    found = torch.cat(patches)
    assert torch.equal(found, golden(0, 'patches'))
    pixels = found[:8].float() * model.picture_scale[:, None] + model.picture_shift[:, None]
    torch.testing.assert_close(pixels, golden(0, 'pixels'), atol=2e-7, rtol=0)


def test_pictures_are_cropped_as_the_published_clients_do(golden):
    image = stretched(golden(0, 'base').numpy(), 48, 64)
    found = stretched(cropped(image, 0.95), 48, 64, smooth=False)
    np.testing.assert_array_equal(found, golden.tensors['cropped'].numpy())


@pytest.mark.parametrize('number', NUMBERS)
def test_the_vision_tower_sees_what_the_reference_s_does(golden, models, number):
    seen, taps = models[number].see(batched(models[number], golden.observation(number)))
    torch.testing.assert_close(seen[0], golden(number, 'seen'), **EXACT)
    torch.testing.assert_close(torch.cat(taps), golden(number, 'taps'), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
def test_keys_and_values_of_the_last_layers_are_the_reference_s(golden, models, number):
    model = models[number]
    inputs = batched(model, golden.observation(number))
    context = model.vlm(inputs)
    found = context['cache'][0][..., read_order(inputs), :]
    torch.testing.assert_close(found, golden(number, 'cache'), **EXACT)
    assert int(context['valid'].sum()) == len(golden(number, 'tokens'))


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
    torch.testing.assert_close(chunk, golden(number, 'chunk'), **EXACT)
    np.testing.assert_allclose(model.postprocess(chunk, observation),
                               golden(number, 'actions')[:, :7], atol=1e-5, rtol=1e-5)


def without_camera(model, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the inputs of a robot that has no second camera beside those of robots that do."""
    first, second = (rows * columns for rows, columns in model.config.grids)
    missing = torch.full((second,), ABSENT), torch.zeros(3, second, dtype=torch.int64)
    return {**inputs, 'picture_1': torch.full((*model.config.pictures[1], 3), 77,
                                              dtype=torch.uint8),
            'order': torch.cat((inputs['order'][:first], missing[0], inputs['order'][first:])),
            'places': torch.cat((inputs['places'][:, :first], missing[1],
                                 inputs['places'][:, first:]), 1)}


def test_a_batch_of_different_prompts_and_cameras_gives_what_each_gives_alone(golden, models):
    rows = [models[number].preprocess(golden.observation(number)) for number in NUMBERS]
    rows[1] = without_camera(models[0], rows[1])
    inputs = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    noise = torch.stack([golden(number, 'noise') for number in NUMBERS])
    together = models[0].adit(models[0].vlm(inputs), noise)
    torch.testing.assert_close(together, golden.tensors['batch.chunk'], **EXACT)
    for number in NUMBERS:
        torch.testing.assert_close(together[number], golden(number, 'chunk'), **EXACT)


def test_cameras_are_told_by_name_whatever_their_order(golden):
    model = registry.load(model_of(CAMERAS[::-1]), 'cpu')
    chunk = model.adit(model.vlm(batched(model, golden.observation(0, CAMERAS[::-1]))),
                       golden(0, 'noise')[None])[0]
    torch.testing.assert_close(chunk, golden(0, 'chunk'), **EXACT)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no GPU')
def test_bfloat16_on_a_gpu_is_near_the_reference(golden):
    model = registry.load(model_of(), 'cuda:0')
    inputs = batched(model, golden.observation(0))
    context = model.vlm({name: tensor.cuda() for name, tensor in inputs.items()})
    chunk = model.adit(context, golden(0, 'noise')[None].cuda())[0].cpu()
    difference = (chunk - golden(0, 'chunk')).abs()
    assert difference.max() < 0.2 and difference.mean() < 0.03
