# SPDX-License-Identifier: Apache-2.0
"""Pictures, states and prompts on their way into a model, and actions on their way out."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from robion_ros.core import Observation
from robion_ros.models.processing import (
    check_observation,
    pad_tokens,
    pad_values,
    resize_with_pad,
    Scaling,
)
from robion_ros.models.protocol import ModelSpec

SIDE = st.integers(1, 200)
SIZE = st.integers(1, 64)


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@given(SIDE, SIDE, SIZE, st.sampled_from(['centre', 'end']))
def test_a_picture_stands_whole_and_undistorted_in_its_padding(height, width, size, anchor):
    white = np.full((height, width, 3), 255, np.uint8)
    result = resize_with_pad(white, size, anchor, fill=7)
    assert result.shape == (size, size, 3) and result.dtype == np.uint8
    inside = (result == 255).all(2)
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    top, bottom, left, right = rows[0], rows[-1], columns[0], columns[-1]
    assert inside[top:bottom + 1, left:right + 1].all()
    assert (result[~inside] == 7).all()
    scale = size / max(height, width)
    assert abs(len(rows) - height * scale) <= 1 and abs(len(columns) - width * scale) <= 1
    after = size - 1 - bottom, size - 1 - right
    if anchor == 'end':
        assert after == (0, 0)
    else:
        assert after[0] - top in (0, 1) and after[1] - left in (0, 1)


@given(SIDE, SIDE, st.integers(0, 9))
def test_resizing_is_bilinear(height, width, seed):
    image = picture(height, width, seed)
    ratio = max(height, width) / 32
    rows, columns = max(1, int(height / ratio)), max(1, int(width / ratio))
    expected = F.interpolate(torch.from_numpy(image).permute(2, 0, 1)[None].float(),
                             (rows, columns), mode='bilinear')[0].permute(1, 2, 0).numpy()
    exact = resize_with_pad(image.astype(np.float32), 32, 'end')[32 - rows:, 32 - columns:]
    rounded = resize_with_pad(image, 32, 'end')[32 - rows:, 32 - columns:]
    np.testing.assert_allclose(exact, expected, atol=0.01)
    np.testing.assert_allclose(rounded, expected, atol=1)


def test_padding_is_in_the_middle_with_the_odd_row_after_it():
    result = resize_with_pad(np.full((2, 8, 3), 9, np.uint8), 5)
    assert result[:, 0, 0].tolist() == [0, 0, 9, 0, 0]
    assert resize_with_pad(np.full((4, 8, 3), 9, np.uint8), 5)[:, 0, 0].tolist() == [0, 9, 9, 0, 0]


def test_a_picture_of_the_right_size_stays_as_it_is():
    image = picture(64, 64)
    np.testing.assert_array_equal(resize_with_pad(image, 64), image)


@pytest.mark.parametrize('view', [
    lambda image: image[:, :, ::-1], lambda image: image[::-1], lambda image: image[:, :40],
    lambda image: image[::2, ::2],
], ids=['colours swapped', 'upside down', 'padded rows', 'every second pixel'])
def test_views_are_read_as_what_they_show(view):
    seen = view(picture(60, 80))
    np.testing.assert_array_equal(resize_with_pad(seen, 32), resize_with_pad(seen.copy(), 32))


def test_the_picture_is_left_alone():
    image = picture(64, 64)
    image.flags.writeable = False
    resize_with_pad(image, 64)[:] = 0
    assert image.any()


@pytest.mark.parametrize('shape', [(0, 4, 3), (4, 0, 3), (4, 4), (4, 4, 4), (4, 4, 1)], ids=str)
def test_what_is_no_picture_is_refused(shape):
    with pytest.raises(ValueError, match=r'must be \[height, width, 3\]'):
        resize_with_pad(np.zeros(shape, np.uint8), 8)


VALUES = st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3)


@given(VALUES, VALUES, st.lists(st.floats(0.125, 1e3, width=32), min_size=3, max_size=3))
def test_scaling_back_gives_the_values_again(values, mean, std):
    scaling = Scaling(mean, std)
    values = np.array(values, np.float32)
    scaled = scaling.apply(values)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaling.invert(scaled), values, atol=2e-3)


def test_scaling_is_value_by_value_over_all_steps():
    scaling = Scaling((1, 10), (2, 0.5))
    assert scaling.apply(np.array([3, 9])).tolist() == [1, -2]
    assert scaling.invert(np.array([[1, -2], [0, 0]])).tolist() == [[3, 9], [1, 10]]


def test_a_state_is_filled_up_with_zeros():
    assert pad_values(np.array([1, 2], np.float32), 4).tolist() == [1, 2, 0, 0]


def test_tokens_are_filled_up_and_marked():
    tokens, real = pad_tokens([5, 6], 4, 9)
    assert tokens.tolist() == [5, 6, 9, 9] and real.tolist() == [True, True, False, False]


def test_a_prompt_that_is_cut_is_said_to_be(caplog):
    tokens, real = pad_tokens([5, 6, 7], 2, 0)
    assert tokens.tolist() == [5, 6] and real.all()
    assert 'the prompt has 3 tokens, the model reads the first 2' in caplog.text
    caplog.clear()
    pad_tokens([5, 6], 2, 0)
    assert not caplog.text


@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_is_refused_before_anything_runs(value):
    seen = Observation((picture(4, 4),), np.array([0, value], np.float32), 'go', 0)
    with pytest.raises(ValueError, match='the state has values that are not finite'):
        check_observation(seen, ModelSpec('any', 1, 2, 3, 4, 0.05))
