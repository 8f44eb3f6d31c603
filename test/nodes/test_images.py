# SPDX-License-Identifier: Apache-2.0
"""Raw camera messages become the picture that was taken, or are refused with a reason."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from sensor_msgs.msg import Image

from robion_ros.nodes import images, layouts
from robion_ros.nodes.bridge import find_cv_bridge
from robion_ros.nodes.images import inspect, Refused, to_rgb

RED, BLUE, GREY = (255, 0, 0), (0, 0, 255), 0x5A
# ITU-R BT.601, limited range: Y, U, V.
YUV = {RED: (81, 90, 240), BLUE: (41, 240, 110)}
PATTERNS = {'bayer_rggb': 'RGGB', 'bayer_bggr': 'BGGR', 'bayer_gbrg': 'GBRG', 'bayer_grbg': 'GRBG'}
ORDERS = {'rgb': 'RGB', 'bgr': 'BGR', 'rgba': 'RGBA', 'bgra': 'BGRA',
          '8UC3 as bgr': 'BGR', '8UC3 as rgb': 'RGB', '8UC4 as bgr': 'BGRA', '8UC4 as rgb': 'RGBA'}


def solid(color, height=8, width=8):
    return np.full((height, width, 3), color, np.uint8)


def quarters():
    """Return a 12x12 picture whose quarters are red, blue; blue, red."""
    left = np.concatenate([solid(RED, 6, 6), solid(BLUE, 6, 6)])
    return np.concatenate([left, left[::-1]], 1)


def message(encoding, rows, width, height=None, pad=0, **fields):
    """Return an Image of the bytes in rows, each row followed by pad bytes of noise."""
    rows = rows.reshape(len(rows), -1).view(np.uint8)
    data = np.pad(rows, ((0, 0), (0, pad)), constant_values=0xAA)
    fields = {'step': data.shape[1], 'height': height or len(rows), 'width': width,
              'encoding': encoding, 'data': array('B', data.tobytes()), **fields}
    return Image(**fields)


def encode(picture, name, **fields):
    """Return an Image of an RGB picture in any encoding, by arithmetic of its own."""
    height, width = picture.shape[:2]
    base, _, _ = name.partition(' as ')
    family = name.rstrip('0123456789')
    planes = dict(zip('RGB', np.moveaxis(picture, 2, 0), strict=True))
    planes['A'] = np.full((height, width), 77, np.uint8)
    if name in ORDERS or family in ORDERS:
        samples = np.stack([planes[c] for c in ORDERS.get(name) or ORDERS[family]], 2)
    elif family in PATTERNS:
        samples = np.empty((height, width), np.uint8)
        for index, color in enumerate(PATTERNS[family]):
            cell = np.s_[index // 2::2, index % 2::2]
            samples[cell] = planes[color][cell]
    elif family == 'mono' or name == '8UC1':
        samples = planes['G'].copy()
    else:
        y, u, v = np.moveaxis(np.array([[YUV[tuple(pixel)] for pixel in row]
                                        for row in picture.tolist()], np.uint8), 2, 0)
        if name in ('nv12', 'nv21'):
            chroma = np.stack((u, v) if name == 'nv12' else (v, u), 2)[::2, ::2]
            samples = np.concatenate([y, chroma.reshape(height // 2, width)])
        else:
            color = np.stack([u[:, ::2], v[:, ::2]], 2).reshape(height, width)
            samples = np.stack((color, y) if name in ('uyvy', 'yuv422') else (y, color), 2)
    if base.endswith('16'):
        # The low byte is noise: only the high one counts.
        kind = '>u2' if fields.get('is_bigendian') else '<u2'
        samples = (samples.astype(np.uint16) * 256 + 0xC3).astype(kind)
    return message(base, samples, width, height, **fields)


def order(name):
    return 'rgb' if name.endswith('as rgb') else 'bgr'


def check(picture, expected, tolerance=0):
    assert picture.dtype == np.uint8
    assert picture.flags.c_contiguous
    assert picture.shape == expected.shape
    assert np.abs(picture.astype(int) - expected).max() <= tolerance


PACKED = [f'{name}{bits}' for name in ('rgb', 'bgr', 'rgba', 'bgra') for bits in (8, 16)]
PACKED += ['8UC3 as bgr', '8UC3 as rgb', '8UC4 as bgr', '8UC4 as rgb']
BAYER = [f'{name}{bits}' for name in PATTERNS for bits in (8, 16)]
PLANAR = ['uyvy', 'yuv422', 'yuyv', 'yuv422_yuy2', 'nv12', 'nv21']
MONO = ['mono8', '8UC1', 'mono16']


@pytest.mark.parametrize('name', PACKED + BAYER + PLANAR)
def test_one_red_picture_is_the_same_tensor_in_every_encoding(name):
    check(to_rgb(encode(solid(RED), name), order(name)), solid(RED), 2 if name in PLANAR else 0)


@pytest.mark.parametrize('name', PACKED + BAYER + PLANAR)
def test_places_and_colours_stay_apart(name):
    inner = np.ix_([0, 1, 2, 3, 8, 9, 10, 11], [0, 1, 2, 3, 8, 9, 10, 11])  # not the borders
    picture = to_rgb(encode(quarters(), name), order(name))
    check(picture[inner], quarters()[inner], 2 if name in PLANAR else 0)


@pytest.mark.parametrize('name', PACKED)
def test_every_pixel_keeps_its_value(name):
    picture = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    check(to_rgb(encode(picture, name), order(name)), picture)


@pytest.mark.parametrize('name', MONO)
def test_grey_stands_in_three_channels(name):
    check(to_rgb(encode(solid(GREY), name), 'bgr'), solid(GREY))


@pytest.mark.parametrize('name', PACKED + BAYER + PLANAR + MONO)
def test_a_big_endian_sender_gives_the_same_picture(name):
    picture = quarters()
    check(to_rgb(encode(picture, name, is_bigendian=1), order(name)),
          to_rgb(encode(picture, name), order(name)))


def test_64x48_bgr8_with_step_208_is_the_unpadded_image():
    picture = np.random.default_rng(2).integers(0, 256, (48, 64, 3), np.uint8)
    padded = encode(picture, 'bgr8', pad=16)
    assert padded.step == 208
    assert inspect(padded) == ()
    check(to_rgb(padded, 'bgr'), picture)


@pytest.mark.parametrize('pad', [1, 2, 16])
@pytest.mark.parametrize('name', PACKED + BAYER + PLANAR + MONO)
def test_padding_changes_nothing(name, pad):
    check(to_rgb(encode(quarters(), name, pad=pad), order(name)),
          to_rgb(encode(quarters(), name), order(name)))


def test_the_picture_outlives_its_message():
    expected = np.random.default_rng(3).integers(0, 256, (48, 64, 3), np.uint8)
    picture = to_rgb(encode(expected, 'rgb8'), 'bgr')
    encode(solid(GREY, 48, 64), 'rgb8')  # would take freed memory
    check(picture, expected)


def test_packed_rgb8_is_not_copied_without_cv_bridge(monkeypatch):
    monkeypatch.setattr(images, 'find_cv_bridge', lambda: (None, ''))
    source = encode(solid(RED), 'rgb8')
    assert np.shares_memory(to_rgb(source, 'bgr'), np.frombuffer(source.data, np.uint8))


@pytest.mark.parametrize(('source', 'reason'), [
    pytest.param(message('rgb8', solid(RED), 8, data=array('B', bytes(92))),
                 r'8x8.*92 bytes, must be 192', id='100 bytes short'),
    pytest.param(message('nv12', solid(RED)[:, :, 0], 8), '64 bytes, must be 96',
                 id='nv12 without its colours'),
    pytest.param(message('rgb8', solid(RED), 8, step=0, data=array('B', bytes(193))),
                 'step 0: data has 193 bytes, must be 192', id='step 0 and not packed'),
    pytest.param(message('rgb8', np.zeros((2, 3840), np.uint8), 1920),
                 'step is 3840 bytes, a row takes 5760', id='step shorter than a row'),
    pytest.param(Image(encoding='rgb8'), '0x0 has no pixels', id='0x0'),
    pytest.param(Image(encoding='rgb8', height=480, step=0), '0x480 has no pixels', id='width 0'),
    pytest.param(Image(encoding='rgb8', width=640, height=480, step=1920),
                 '0 bytes, must be 921600', id='without data'),
    pytest.param(Image(encoding='mono8', width=2**32 - 1, height=2**32 - 1, step=2**32 - 1),
                 'more than 16000000 pixels', id='impossible size'),
    *(pytest.param(message(name, np.zeros((8, 16), np.uint8), 8),
                   f"'{name}': depth image on a colour camera", id=name)
      for name in ('16UC1', '32FC1', '64FC1', '16SC1', '32SC1', '16U')),
    pytest.param(message('nv24', solid(RED), 8), "'nv24' is not supported.*bgr8.*rgb8",
                 id='unknown encoding'),
    pytest.param(message('', solid(RED), 8), "encoding '' is not supported", id='no encoding'),
    pytest.param(message('uyvy', np.zeros((2, 6), np.uint8), 3), '3x2.*multiple of 2x1',
                 id='odd width of yuv'),
    pytest.param(message('nv12', np.zeros((4, 2), np.uint8), 2, 3), '2x3.*multiple of 2x2',
                 id='odd height of nv12'),
    pytest.param(message('bayer_rggb8', np.zeros((2, 8), np.uint8), 8), '8x2.*at least 3x3',
                 id='bayer without neighbours'),
])
def test_is_refused_with_a_reason(source, reason):
    with pytest.raises(Refused, match=reason):
        inspect(source)
    with pytest.raises(Refused, match=reason):
        to_rgb(source, 'bgr')


@pytest.mark.parametrize(('source', 'warning'), [
    pytest.param(message('rgb8', solid(RED), 8, data=array('B', bytes(RED) * 65)),
                 'data has 195 bytes, only the first 192 are used', id='data too long'),
    pytest.param(encode(solid(RED), 'rgb8', step=0), 'step is 0, taken as 24 bytes',
                 id='step 0'),
    pytest.param(encode(solid(RED), '8UC3 as bgr'), '8UC3 does not say the order', id='8UC3'),
    pytest.param(encode(solid(RED), '8UC4 as bgr'), '8UC4 does not say the order', id='8UC4'),
])
def test_is_used_with_one_warning(source, warning):
    warnings = inspect(source)
    assert len(warnings) == 1
    assert warning in warnings[0]
    check(to_rgb(source, 'bgr'), solid(RED))


def test_a_good_image_gives_no_warning():
    assert inspect(encode(solid(RED), 'rgb8')) == ()


def survive(source, color_order):
    """Check that a message is refused or becomes a picture, and nothing else happens."""
    try:
        inspect(source)
    except Refused:
        with pytest.raises(Refused):
            to_rgb(source, color_order)
    else:
        check(to_rgb(source, color_order), np.zeros((source.height, source.width, 3)), 255)


SIZES = st.integers(0, 12) | st.integers(0, 2**32 - 1)
ENCODINGS = st.sampled_from([*layouts.LAYOUTS, *layouts.UNORDERED, '16UC1']) | st.text(max_size=8)
COLOR_ORDERS = st.sampled_from(['bgr', 'rgb'])


@settings(deadline=None)
@given(SIZES, SIZES, SIZES, ENCODINGS, st.integers(0, 255), st.binary(max_size=400), COLOR_ORDERS)
def test_no_raw_message_does_harm(width, height, step, encoding, big, data, color_order):
    survive(Image(width=width, height=height, step=step, encoding=encoding, is_bigendian=big,
                  data=array('B', data)), color_order)


@settings(deadline=None)
@given(st.data(), st.integers(1, 9), st.integers(1, 9), st.sampled_from(sorted(layouts.LAYOUTS)),
       st.integers(0, 3), st.integers(0, 2))
def test_no_message_of_about_the_right_size_does_harm(data, width, height, encoding, pad, extra):
    row, rows = layouts.LAYOUTS[encoding].shape(width, height)
    size = (row + pad) * rows + extra
    survive(Image(width=width, height=height, step=row + pad, encoding=encoding,
                  data=array('B', data.draw(st.binary(min_size=size, max_size=size)))), 'bgr')


@pytest.mark.skipif(find_cv_bridge()[0] is None, reason=find_cv_bridge()[1])
@pytest.mark.parametrize('encoding', [*layouts.LAYOUTS, *layouts.UNORDERED])
def test_cv_bridge_and_opencv_see_the_same(monkeypatch, encoding):
    row, rows = layouts.layout_of(encoding, 'bgr').shape(16, 8)
    noise = np.random.default_rng(5).integers(0, 256, (rows, row), np.uint8)
    sources = [message(encoding, noise, 16, 8, pad=pad, is_bigendian=big)
               for pad in (0, 5) for big in (0, 1)]
    by_bridge = [to_rgb(source, 'bgr') for source in sources]
    monkeypatch.setattr(images, 'find_cv_bridge', lambda: (None, ''))
    for source, picture in zip(sources, by_bridge, strict=True):
        # Each is built with an OpenCV of its own, and some round YUV differently.
        check(picture, to_rgb(source, 'bgr'), 1)
