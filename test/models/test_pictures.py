# SPDX-License-Identifier: Apache-2.0
"""Pictures as lerobot and openpi see them; test_golden.py compares them with theirs."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import torch

from robion_ros.models import pictures
from robion_ros.models.processing import inner_size

SIDE, SIZE = st.integers(1, 90), st.integers(1, 64)
CENTRED = pictures.plain, pictures.exact, pictures.smoothed
AT_END = pictures.plain_at_end, pictures.exact_at_end
KINDS = *CENTRED, *AT_END


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize('kind', CENTRED, ids=lambda kind: kind.__name__)
@given(height=SIDE, width=SIDE, size=SIZE)
def test_a_picture_stands_in_the_middle_of_black(kind, height, width, size):
    result = kind(np.full((height, width, 3), 255, np.uint8), size)
    assert result.shape == (size, size, 3)
    assert result.dtype == (torch.float32 if kind is pictures.exact else torch.uint8)
    assert set(result.float().round().unique().tolist()) <= {0, 255}
    rows, columns = (result[..., 0].amax(axis).nonzero().flatten() for axis in (1, 0))
    for places in (rows, columns):
        before, after = int(places[0]), size - 1 - int(places[-1])
        assert after - before in (0, 1)


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: kind.__name__)
def test_a_picture_of_the_right_size_stays_as_it_is(kind):
    image = picture(32, 32)
    assert torch.equal(kind(image, 32), torch.from_numpy(image).to(kind(image, 32).dtype))


@pytest.mark.parametrize('height, width, size', [
    (480, 640, 512), (720, 1280, 512), (60, 80, 64), (96, 128, 56), (45, 72, 64), (241, 333, 512)])
def test_lerobot_s_pictures_are_interpolated_ones(height, width, size):
    image = picture(height, width)
    rows, columns = inner_size(image, size)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    wanted = torch.nn.functional.interpolate(planes, (rows, columns), mode='bilinear')
    found = pictures.exact_at_end(image, size)[size - rows:, size - columns:]
    torch.testing.assert_close(found, wanted[0].permute(1, 2, 0), atol=1e-4, rtol=0)


@pytest.mark.parametrize('kind, centred', list(zip(AT_END, CENTRED, strict=False)),
                         ids=lambda kind: kind.__name__)
@given(height=SIDE, width=SIDE, size=SIZE)
def test_the_same_picture_stands_at_the_bottom_right(kind, centred, height, width, size):
    image = picture(height, width)
    rows, columns = inner_size(image, size)
    top, left = (size - rows) // 2, (size - columns) // 2
    found = kind(image, size)
    assert torch.equal(found[size - rows:, size - columns:],
                       centred(image, size)[top:top + rows, left:left + columns])
    assert not found[:size - rows].any() and not found[:, :size - columns].any()


def means(lines, wanted):
    """Return weighted means along the first axis, the weights falling off as a triangle."""
    scale = len(lines) / wanted
    places = np.arange(len(lines)) + 0.5
    centres = (np.arange(wanted)[:, None] + 0.5) * scale
    weights = np.maximum(1 - np.abs(places - centres) / max(scale, 1), 0)
    return np.tensordot(weights / weights.sum(1, keepdims=True), lines, 1)


@given(height=SIDE, width=SIDE, size=SIZE)
def test_smoothing_is_a_mean_of_what_a_pixel_covers(height, width, size):
    image = picture(height, width)
    rows, columns = inner_size(image, size)
    wanted = means(means(image.swapaxes(0, 1), columns).swapaxes(0, 1), rows)
    top, left = (size - rows) // 2, (size - columns) // 2
    found = pictures.smoothed(image, size)[top:top + rows, left:left + columns].numpy()
    assert np.abs(found - wanted).max() < 1.01  # It is rounded twice.


@given(height=SIDE, width=SIDE, rows=SIZE, columns=SIZE, smooth=st.booleans(),
       value=st.integers(0, 255))
def test_a_stretched_picture_has_the_size_that_is_wanted(height, width, rows, columns, smooth,
                                                         value):
    image = np.full((height, width, 3), value, np.uint8)
    for found in (pictures.stretched(image, rows, columns, smooth),
                  pictures.quick(image, rows, columns)):
        assert found.shape == (rows, columns, 3) and set(found.flatten().tolist()) == {value}


def test_bicubic_weights_are_those_of_the_cubic_with_a_half():
    line = np.array([0, 0, 0, 200, 0, 0, 0], np.uint8)
    image = np.broadcast_to(line[None, :, None], (2, 7, 3))
    found = pictures.stretched(image, 2, 14)[0, :, 0].tolist()
    weights = {0.25: 0.8672, 0.75: 0.2266, 1.25: -0.0703, 1.75: -0.0234}
    away = [abs((index + 0.5) / 2 - 3.5) for index in range(14)]
    assert found == [max(0, round(200 * weights.get(each, 0))) for each in away]


@pytest.mark.parametrize('shape', [(0, 4, 3), (4, 4), (4, 4, 4)], ids=str)
@pytest.mark.parametrize('kind', [pictures.stretched, pictures.quick])
def test_what_is_no_picture_is_not_stretched(kind, shape):
    with pytest.raises(ValueError, match=r'must be \[height, width, 3\]'):
        kind(np.zeros(shape, np.uint8), 8, 8)


@given(height=SIDE, width=SIDE, part=st.floats(0.5, 1))
def test_a_crop_is_the_middle(height, width, part):
    found = pictures.cropped(picture(height, width), part)
    assert found.shape[:2] == (int(height * part), int(width * part))
    top, left = (height - found.shape[0]) // 2, (width - found.shape[1]) // 2
    assert np.array_equal(found, picture(height, width)[top:top + found.shape[0],
                                                        left:left + found.shape[1]])


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize('view', [
    lambda image: image[:, :, ::-1], lambda image: image[::-1], lambda image: image[:, :40],
], ids=['colours swapped', 'upside down', 'padded rows'])
def test_views_are_read_as_what_they_show_and_left_alone(kind, view):
    seen = view(picture(60, 80))
    seen.flags.writeable = False
    assert torch.equal(kind(seen, 32), kind(seen.copy(), 32))


@pytest.mark.parametrize('kind', KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize('shape', [(0, 4, 3), (4, 4), (4, 4, 4)], ids=str)
def test_what_is_no_picture_is_refused(kind, shape):
    with pytest.raises(ValueError, match=r'must be \[height, width, 3\]'):
        kind(np.zeros(shape, np.uint8), 8)
