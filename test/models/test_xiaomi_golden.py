# SPDX-License-Identifier: Apache-2.0
"""
Xiaomi-Robotics-0 sees and reads what it does in its own code.

The numbers were made by that code: see test/golden/make_xiaomi.py. What the model answers is
compared in test_golden.py.
"""

import numpy as np
import pytest
import torch

from robion_ros.models.pictures import cropped, stretched
from robion_ros.models.qwen3_vl import ABSENT

from .golden import Case, EXACT, NUMBERS


@pytest.fixture(scope='module')
def case(case_of) -> Case:
    return case_of('xiaomi')


def read_order(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return where the tokens that exist stand here, in the order that they are read in."""
    order = inputs['order'].flatten()
    return order.argsort()[:int((order < ABSENT).sum())]


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_stand_where_the_reference_has_them(case, number):
    c, inputs, golden = case.models[number].config, case.inputs(number), case.golden
    whole = torch.cat((torch.full((c.picture_tokens,), c.image_token), inputs['tokens'][0]))
    assert torch.equal(whole[read_order(inputs)], golden(number, 'tokens').long())
    assert [[1, 2 * rows, 2 * columns] for rows, columns in c.grids] == (
        golden(number, 'grids').tolist())


def test_pictures_are_the_reference_s(case):
    model, inputs, golden = case.models[0], case.inputs(0), case.golden
    patches = []
    for camera, (rows, columns) in enumerate(model.config.grids):
        picture = inputs[f'picture_{camera}'].reshape(rows, 2, 8, columns, 2, 8, 3)
        patches.append(picture.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, 64))
    found = torch.cat(patches)
    assert torch.equal(found, golden(0, 'patches'))
    pixels = found[:8].float() * model.picture_scale[:, None] + model.picture_shift[:, None]
    torch.testing.assert_close(pixels, golden(0, 'pixels'), atol=2e-7, rtol=0)


def test_pictures_are_cropped_as_the_published_clients_do(case):
    image = stretched(case.golden(0, 'base').numpy(), 48, 64)
    found = stretched(cropped(image, 0.95), 48, 64, smooth=False)
    np.testing.assert_array_equal(found, case.golden.tensors['cropped'].numpy())


@pytest.mark.parametrize('number', NUMBERS)
def test_the_vision_tower_sees_what_the_reference_s_does(case, number):
    seen, taps = case.models[number].see(case.inputs(number))
    torch.testing.assert_close(seen[0], case.golden(number, 'seen'), **EXACT)
    torch.testing.assert_close(torch.cat(taps), case.golden(number, 'taps'), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
def test_keys_and_values_of_the_last_layers_are_the_reference_s(case, number):
    inputs = case.inputs(number)
    context = case.models[number].vlm(inputs)
    found = context['cache'][0][..., read_order(inputs), :]
    torch.testing.assert_close(found, case.golden(number, 'cache'), **EXACT)
    assert int(context['valid'].sum()) == len(case.golden(number, 'tokens'))
