# SPDX-License-Identifier: Apache-2.0
"""Compressed camera messages become the picture that was taken, or are refused with a reason."""

from array import array
import struct
import zlib

import cv2
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage

from robion_ros.nodes import layouts
from robion_ros.nodes.images import inspect, Refused, to_rgb

RED, GREY = (255, 0, 0), 0x5A
NOISE = np.random.default_rng(6).integers(0, 256, (8, 16, 3), np.uint8)


def solid(color, height=8, width=8):
    return np.full((height, width, 3), color, np.uint8)


def compressed(data, form='jpeg'):
    return CompressedImage(format=form, data=array('B', bytes(data)))


def png(picture):
    return bytes(cv2.imencode('.png', picture)[1])


def jpeg(picture):
    return bytes(cv2.imencode('.jpg', picture, [cv2.IMWRITE_JPEG_QUALITY, 98])[1])


def bgr(picture):
    return np.ascontiguousarray(picture[:, :, ::-1])


def check(picture, expected, tolerance=0):
    assert picture.dtype == np.uint8
    assert picture.flags.c_contiguous
    assert picture.shape == expected.shape
    assert np.abs(picture.astype(int) - expected).max() <= tolerance


@pytest.mark.parametrize(('data', 'tolerance'), [
    pytest.param(png(bgr(solid(RED))), 0, id='png'),
    pytest.param(png(bgr(solid(RED)).astype(np.uint16) * 256 + 0xC3), 0, id='png of 16 bits'),
    pytest.param(png(np.dstack([bgr(solid(RED)), solid(0)[:, :, :1]])), 0, id='transparent png'),
    pytest.param(jpeg(bgr(solid(RED))), 3, id='jpeg'),
])
def test_the_red_picture_is_the_tensor_that_raw_messages_give(data, tolerance):
    check(to_rgb(compressed(data), 'bgr'), solid(RED), tolerance)


def test_every_pixel_of_a_png_keeps_its_value():
    check(to_rgb(compressed(png(bgr(NOISE))), 'bgr'), NOISE)


@pytest.mark.parametrize('data', [
    pytest.param(png(solid(GREY)[:, :, 0]), id='png'),
    pytest.param(png(np.full((8, 8), GREY * 256 + 0xC3, np.uint16)), id='png of 16 bits'),
    pytest.param(jpeg(solid(GREY)[:, :, 0]), id='jpeg'),
])
def test_grey_stands_in_three_channels(data):
    check(to_rgb(compressed(data), 'bgr'), solid(GREY))


@pytest.mark.parametrize(('source', 'reason'), [
    pytest.param(compressed(b''), 'without data', id='compressed without data'),
    pytest.param(compressed(jpeg(solid(RED)), '16UC1; compressedDepth png'),
                 'compressedDepth is a depth image', id='compressedDepth'),
    pytest.param(compressed(png(NOISE[:, :, 0]), '16UC1; png compressed '),
                 "'16UC1': depth image", id='depth as png'),
    pytest.param(compressed(b'RIFF0000WEBP', 'webp'),
                 'neither JPEG nor PNG: it starts with 52494646', id='webp'),
    pytest.param(compressed(b'\0' * 100), 'neither JPEG nor PNG', id='zeros'),
    pytest.param(compressed(b'\xff\xd8\xff\xd9'), 'JPEG of 4 bytes is damaged: it has no header',
                 id='jpeg of two markers'),
    pytest.param(compressed(b'\xff\xd8' + b'\xff' * 9000 + b'\xff\xd9'), 'damaged',
                 id='jpeg of fill bytes'),
    pytest.param(compressed(b'\x89PNG\r\n\x1a\nIEND\xaeB`\x82'), 'PNG of 16 bytes is damaged',
                 id='png without header'),
])
def test_is_refused_with_a_reason(source, reason):
    with pytest.raises(Refused, match=reason):
        inspect(source)
    with pytest.raises(Refused, match=reason):
        to_rgb(source, 'bgr')


@pytest.mark.parametrize('end', [0, 1, 10, 200, 'half', -2, -1])
@pytest.mark.parametrize('encoder', [png, jpeg])
def test_a_picture_that_is_cut_off_never_replaces_a_good_one(encoder, end):
    whole = encoder(np.random.default_rng(4).integers(0, 256, (48, 64, 3), np.uint8))
    inspect(compressed(whole))
    with pytest.raises(Refused):
        inspect(compressed(whole[:len(whole) // 2 if end == 'half' else end]))


@pytest.mark.parametrize('zeros', [1, 100, 4095, 4096, 200_000])
@pytest.mark.parametrize('encoder', [png, jpeg])
def test_zeros_after_the_end_are_passed_over(encoder, zeros):
    check(to_rgb(compressed(encoder(bgr(solid(RED))) + bytes(zeros)), 'bgr'), solid(RED), 3)


def test_damage_inside_a_png_is_refused_when_it_is_decoded():
    data = bytearray(png(bgr(solid(RED))))
    data[-20] ^= 0xFF
    inspect(compressed(data))
    with pytest.raises(Refused, match='cannot be decoded'):
        to_rgb(compressed(data), 'bgr')


@pytest.mark.parametrize('form', [
    'jpeg', 'JPG', 'png', '', 'rgb8; jpeg compressed bgr8', 'bgr8; png compressed bgr8',
    'rgb8; jpeg compressed rgb8', 'bayer_rggb8; jpeg compressed bgr8', 'h264', 'x' * 100_000,
])
@pytest.mark.parametrize('encoder', [png, jpeg])
def test_the_bytes_say_what_they_are(encoder, form):
    check(to_rgb(compressed(encoder(bgr(solid(RED))), form), 'bgr'), solid(RED), 3)


@pytest.mark.parametrize('bits', [8, 16])
@pytest.mark.parametrize(('pattern', 'cell'), [
    ('rggb', [[1, 0], [0, 0]]), ('bggr', [[0, 0], [0, 1]]),
    ('gbrg', [[0, 0], [1, 0]]), ('grbg', [[0, 1], [0, 0]]),
])
def test_a_mosaic_in_a_grey_picture_becomes_colours(pattern, cell, bits):
    mosaic = (np.tile(cell, (4, 4)) * (2**bits - 1)).astype(f'u{bits // 8}')
    source = compressed(png(mosaic), f'bayer_{pattern}{bits}; png compressed ')
    check(to_rgb(source, 'bgr'), solid(RED))


def test_a_grey_picture_of_a_bayer_camera_stays_grey():
    source = compressed(jpeg(solid(GREY)[:, :, 0]), 'bayer_rggb8; jpeg compressed mono8')
    check(to_rgb(source, 'bgr'), solid(GREY))


def huge_png():
    data = bytearray(png(solid(RED)))
    struct.pack_into('>II', data, 16, 50_000, 50_000)
    struct.pack_into('>I', data, 29, zlib.crc32(data[12:29]))
    return bytes(data)


def huge_jpeg():
    data = bytearray(jpeg(solid(RED)))
    struct.pack_into('>HH', data, data.index(b'\xff\xc0') + 5, 50_000, 50_000)
    return bytes(data)


@pytest.mark.parametrize('data', [pytest.param(huge_png(), id='png'),
                                  pytest.param(huge_jpeg(), id='jpeg')])
def test_a_few_bytes_that_claim_a_huge_picture_are_refused(data):
    with pytest.raises(Refused, match='50000x50000 has more than 16000000 pixels'):
        inspect(compressed(data))


def test_the_orientation_in_exif_data_is_not_applied():
    tiff = b'II*\0\x08\0\0\0\x01\0' + struct.pack('<HHIHH', 0x112, 3, 1, 6, 0) + bytes(4)
    exif = b'\xff\xe1' + struct.pack('>H', len(tiff) + 8) + b'Exif\0\0' + tiff
    data = jpeg(bgr(NOISE))
    turned = data[:2] + exif + data[2:]
    assert cv2.imdecode(np.frombuffer(turned, np.uint8), cv2.IMREAD_COLOR).shape == (16, 8, 3)
    check(to_rgb(compressed(turned), 'bgr'), to_rgb(compressed(data), 'bgr'))


def test_swapped_colours_of_old_senders_are_warned_of():
    source = compressed(png(bgr(solid(RED))), 'rgb8; png compressed rgb8')
    [warning] = inspect(source)
    assert 'red and blue are taken as the picture itself has them' in warning


def test_a_good_picture_gives_no_warning():
    assert inspect(compressed(jpeg(NOISE), 'rgb8; jpeg compressed bgr8')) == ()


def survive(source):
    """Check that a message is refused or becomes a picture, and nothing else happens."""
    try:
        inspect(source)
    except Refused:
        with pytest.raises(Refused):
            to_rgb(source, 'bgr')
        return
    try:
        picture = to_rgb(source, 'bgr')
    except Refused:
        return  # damage that only decoding finds
    check(picture, np.zeros((*picture.shape[:2], 3)), 255)


FORMATS = st.sampled_from(['jpeg', '', 'bayer_rggb8; png compressed ', '16UC1; png compressed ',
                           'rgb8; jpeg compressed bgr8']) | st.text(max_size=20)
GOOD = [encoder(picture) for encoder in (png, jpeg)
        for picture in (NOISE, NOISE[:, :, 0], NOISE[:1, :1])]


@settings(deadline=None)
@given(st.sampled_from([b'', b'\xff\xd8', b'\x89PNG\r\n\x1a\n']), st.binary(max_size=300),
       st.sampled_from([b'', b'\xff\xd9', b'IEND\xaeB`\x82']), FORMATS)
def test_no_compressed_message_does_harm(start, data, end, form):
    survive(compressed(start + data + end, form))


@settings(deadline=None)
@given(st.sampled_from(GOOD), st.lists(st.tuples(st.integers(0, 800), st.integers(0, 255)),
                                       max_size=8), FORMATS)
def test_no_damaged_picture_does_harm(good, damages, form):
    data = bytearray(good)
    for place, value in damages:
        data[place % len(data)] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, 'MAX_PIXELS', 100_000)  # the claimed size is decoded: keep it fast
        survive(compressed(data, form))
