# SPDX-License-Identifier: Apache-2.0
"""
Check and decode JPEG and PNG pictures as sensor_msgs/CompressedImage carries them.

The bytes say what they are; the format string is read only for what they cannot say: a depth
image, or a Bayer mosaic in a grey picture. Knows neither the camera nor its topic.
"""

import re
import struct
from typing import Any, NamedTuple

import cv2
import numpy as np

from robion_ros.nodes.layouts import BAYER, check_size, refuse_depth
from robion_ros.nodes.refused import Refused

JPEG_START, JPEG_END = b'\xff\xd8', b'\xff\xd9'
JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the header that holds the size: all kinds of frame, without the tables between."""
MAX_SEGMENTS = 1000
"""Most segments and fill bytes passed on the way to it, so that a check stays short."""
PNG_START, PNG_END = b'\x89PNG\r\n\x1a\n', b'IEND\xaeB`\x82'
PNG_GREY = 0
BLOCK = 4096
MAX_FORMAT = 100
"""Characters of a format string that are looked at."""
FORMAT = re.compile(r'\s*(?P<source>[a-zA-Z0-9_]+)\s*;\s*\w+\s+compressed\b\s*(?P<target>\w*)\s*')
"""What image_transport writes: '<source>; jpeg compressed <target>'; target may be empty."""


class Header(NamedTuple):
    """What a picture says of itself."""

    width: int
    height: int
    grey: bool


def check_encoded(message: Any) -> tuple[str, ...]:
    """Raise Refused unless the message holds a whole JPEG or PNG; return what to warn of."""
    form = message.format[:MAX_FORMAT]
    if 'compresseddepth' in form.lower():
        raise Refused(f'format {form!r}: compressedDepth is a depth image on a colour camera; '
                      "publish or remap the camera's colour topic")
    found = FORMAT.fullmatch(form)
    if found:
        refuse_depth(found['source'])
    header = read_header(message.data)
    check_size(header.width, header.height)
    if found and found['target'].startswith('rgb'):
        return (f'format {form!r}: red and blue are taken as the picture itself has them, though '
                'old versions of image_transport swapped them',)
    return ()


def decode(message: Any) -> np.ndarray:
    """
    Decode a message that passed check_encoded to uint8 [H, W, 3] RGB, or raise Refused.

    Of 16 bits the high byte stays, alpha is dropped, and the EXIF orientation is not applied:
    a policy learned from the picture as the camera gives it.
    """
    mosaic = _mosaic(message.format[:MAX_FORMAT]) if read_header(message.data).grey else None
    flags = cv2.IMREAD_COLOR if mosaic is None else cv2.IMREAD_GRAYSCALE
    try:
        picture = cv2.imdecode(np.frombuffer(message.data, np.uint8),
                               flags | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise Refused(f'picture cannot be decoded: {error}') from error
    if picture is None:
        raise Refused('picture cannot be decoded: it is damaged')
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB if mosaic is None else mosaic)


def _mosaic(form: str) -> int | None:
    """Return the conversion of a Bayer mosaic, which image_transport stores without a target."""
    found = FORMAT.fullmatch(form)
    if not found or found['target']:
        return None
    return BAYER.get(found['source'].rstrip('0123456789'))


def read_header(data: Any) -> Header:
    """Read the size of a picture in the buffer data; raise Refused unless it is whole."""
    view = memoryview(data)
    if not view:
        raise Refused('compressed image without data')
    if view[:2] == JPEG_START:
        kind, end, read = 'JPEG', JPEG_END, _read_jpeg
    elif view[:8] == PNG_START:
        kind, end, read = 'PNG', PNG_END, _read_png
    else:
        raise Refused(f'compressed image of {len(view)} bytes is neither JPEG nor PNG: it starts '
                      f'with {view[:8].hex()}; set the format of its publisher to one of them')
    if not _tail(view).endswith(end):
        raise Refused(f'{kind} of {len(view)} bytes is cut off: its end marker is missing')
    try:
        return read(view)
    except (struct.error, IndexError):
        raise Refused(f'{kind} of {len(view)} bytes is damaged: it has no header') from None


def _tail(view: memoryview) -> bytes:
    """Return the last bytes but for zeros, which drivers with buffers of one size append."""
    end = len(view)
    while end:
        block = bytes(view[max(0, end - BLOCK):end])
        kept = len(block.rstrip(b'\0'))
        end -= len(block) - kept
        if kept:
            break
    return bytes(view[max(0, end - len(PNG_END)):end])


def _read_png(view: memoryview) -> Header:
    width, height, _, color_type = struct.unpack_from('>IIBB', view, 16)
    return Header(width, height, color_type == PNG_GREY)


def _read_jpeg(view: memoryview) -> Header:
    at = len(JPEG_START)
    for _ in range(MAX_SEGMENTS):
        if view[at] != 0xFF:
            break
        if view[at + 1] == 0xFF:  # fill bytes may stand before a marker
            at += 1
            continue
        length, _, height, width, components = struct.unpack_from('>HBHHB', view, at + 2)
        if view[at + 1] in JPEG_FRAMES:
            return Header(width, height, components == 1)
        at += 2 + length
    raise IndexError
