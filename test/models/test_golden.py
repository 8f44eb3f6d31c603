# SPDX-License-Identifier: Apache-2.0
"""
Every architecture gives, from a checkpoint, the actions that its reference gives with it.

The numbers were made by the references: see the make_*.py of test/golden. The smallest mistake
known, pi0's times in float64, moves them by 8e-6. What comes before the actions, and is of each
its own, is compared in test_pi0_golden.py and its like.
"""

import numpy as np
import pytest
import torch

from robion_ros.models import registry
from robion_ros.models.qwen3_vl import ABSENT

from .golden import batched, Case, EXACT, GOLDEN, NUMBERS

SIZES = {'pi0': (3, 8, 7, 6), 'pi05': (2, 8, 7, 5), 'smolvla': (3, 6, 7, 6),
         'xiaomi': (2, 8, 7, 6), 'gr00t': (2, 8, 7, 5), 'gr00t_lerobot': (2, 8, 7, 5)}
"""Cameras, values of a state, values of an action, steps of a chunk."""
OFF_ON_GPU = {'xiaomi': (0.2, 0.03), 'gr00t': (0.05, 0.01), 'gr00t_lerobot': (0.05, 0.01)}
"""By how much a chunk of bfloat16 may be off, at most and in the mean; for others 0.1, 0.02."""


@pytest.fixture(scope='module', params=GOLDEN)
def kind(request) -> str:
    return request.param


@pytest.fixture
def case(kind, case_of) -> Case:
    return case_of(kind)


def assert_same(kind: str, chunk: torch.Tensor, wanted: torch.Tensor) -> None:
    """Compare chunks; lerobot returns of pi0's and SmolVLA's what is the robot's."""
    if kind in ('pi0', 'pi05', 'smolvla'):
        chunk = chunk[:, :7]
    torch.testing.assert_close(chunk, wanted, **EXACT)


def test_sizes_are_those_of_the_checkpoint(kind, case):
    spec = case.models[0].spec
    assert (spec.cameras, spec.state_size, spec.action_size, spec.horizon) == SIZES[kind]
    assert spec.step_duration == case.golden.step_duration
    assert case.models[1].spec.cameras == spec.cameras - 1


@pytest.mark.parametrize('kind', [kind for kind in GOLDEN if kind != 'xiaomi'], indirect=True)
def test_pictures_are_the_reference_s(kind, case):
    images, squeezed = case.inputs(0)['images'][0], kind.startswith('gr00t')
    assert images.dtype == (torch.uint8 if squeezed else torch.float32)
    seen = (images / 127.5 - 1).permute(0, 3, 1, 2)
    wanted = case.golden(0, 'pixels' if squeezed else 'images')
    torch.testing.assert_close(seen, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize('number', NUMBERS)
def test_velocities_chunk_and_the_robot_s_actions_are_the_reference_s(kind, case, number,
                                                                      monkeypatch):
    model, golden, velocities = case.models[number], case.golden, []
    velocity = model.velocity

    def keep(*arguments):
        velocities.append(velocity(*arguments))
        return velocities[-1]
    monkeypatch.setattr(model, 'velocity', keep)
    chunk = model.adit(model.vlm(case.inputs(number)), golden(number, 'noise')[None])[0]
    torch.testing.assert_close(torch.cat(velocities), golden(number, 'velocities'), **EXACT)
    assert_same(kind, chunk, golden(number, 'chunk'))
    # In the robot's units, tens of degrees, a rounding of the chunk is as many times larger.
    np.testing.assert_allclose(model.postprocess(chunk, golden.observation(number)),
                               golden(number, 'actions')[:, :7], rtol=1e-5,
                               atol=1e-5 if kind == 'xiaomi' else 3e-5)


def masked(case: Case) -> dict[str, torch.Tensor]:
    """Have anything in the place of the camera, as long as it is masked."""
    whole, row = (case.models[number].preprocess(case.golden.observation(number))
                  for number in (0, 1))
    return {**row, 'images': torch.cat((row['images'], 77 * torch.ones_like(whole['images'][:1]))),
            'image_mask': torch.tensor([True] * (len(whole['images']) - 1) + [False])}


def masked_in_the_order_of_reading(case: Case) -> dict[str, torch.Tensor]:
    """Leave the camera's tokens out of the order in which Xiaomi-Robotics-0 reads."""
    config, row = case.models[0].config, case.models[1].preprocess(case.golden.observation(1))
    first, second = (rows * columns for rows, columns in config.grids)
    missing = torch.full((second,), ABSENT), torch.zeros(3, second, dtype=torch.int64)
    return {**row, 'picture_1': torch.full((*config.pictures[1], 3), 77, dtype=torch.uint8),
            'order': torch.cat((row['order'][:first], missing[0], row['order'][first:])),
            'places': torch.cat((row['places'][:, :first], missing[1],
                                 row['places'][:, first:]), 1)}


def masked_with_its_words(case: Case) -> dict[str, torch.Tensor]:
    """Mask the camera and the words of GR00T's prompt that belong to it."""
    model, row = case.models[0], case.models[1].preprocess(case.golden.observation(1))
    before = model.config.text_before
    whole = model.preprocess(case.golden.observation(0))
    # The text between the pictures and the end of the second one belong to the missing camera.
    middle = whole['tokens'][before[0]:sum(before)]
    words = row['tokens'][row['token_mask']]
    tokens = torch.cat((words[:before[0]], words[before[0]:before[0] + 1], middle[1:],
                        middle[:1], words[before[0] + 1:]))
    mask = torch.ones(len(tokens), dtype=torch.bool)
    mask[before[0] + 1:sum(before) + 1] = False
    room = model.config.text_tokens - len(tokens)
    return {**masked(case), 'tokens': torch.nn.functional.pad(tokens, (0, room)),
            'token_mask': torch.nn.functional.pad(mask, (0, room), value=False)}


MASKED = {'xiaomi': masked_in_the_order_of_reading, 'gr00t': masked_with_its_words,
          'gr00t_lerobot': masked_with_its_words}
"""Ways to ask, beside robots that have a camera, for one that does not; for others masked."""


def test_a_batch_of_different_prompts_and_cameras_gives_what_each_gives_alone(kind, case):
    model, golden = case.models[0], case.golden
    first, last = (case.models[number].preprocess(golden.observation(number)) for number in (0, 2))
    rows = [first, MASKED.get(kind, masked)(case), last]
    inputs = {name: torch.stack([row[name] for row in rows]) for name in first}
    noise = torch.stack([golden(number, 'noise') for number in NUMBERS])
    together = model.adit(model.vlm(inputs), noise)
    for number in NUMBERS:
        assert_same(kind, together[number], golden(number, 'chunk'))
    if not kind.startswith('gr00t'):
        torch.testing.assert_close(together, golden.tensors['batch.chunk'], **EXACT)


def test_cameras_are_told_by_name_whatever_their_order(kind, case):
    names = case.golden.camera_names[::-1]
    model = case.golden.load(names)
    chunk = model.adit(model.vlm(batched(model, case.golden.observation(0, names))),
                       case.golden(0, 'noise')[None])[0]
    assert_same(kind, chunk, case.golden(0, 'chunk'))


@pytest.mark.gpu
def test_bfloat16_on_a_gpu_is_near_the_reference(kind, case):
    golden = case.golden
    model = registry.load(golden.model(golden.cameras(0)), 'cuda:0')
    inputs = batched(model, golden.observation(0))
    context = model.vlm({name: tensor.cuda() for name, tensor in inputs.items()})
    chunk = model.adit(context, golden(0, 'noise')[None].cuda())[0].cpu()
    wanted = golden(0, 'chunk')
    difference = (chunk[:, :wanted.shape[1]] - wanted).abs()
    most, mean = OFF_ON_GPU.get(kind, (0.1, 0.02))
    assert difference.max() < most and difference.mean() < mean
    layer = model.network.language_model[0]
    assert layer.mlp.down_proj.weight.dtype == torch.bfloat16
    assert layer.input_layernorm.weight.dtype == torch.float32
