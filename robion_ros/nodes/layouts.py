# SPDX-License-Identifier: Apache-2.0
"""
How the bytes of the image encodings of sensor_msgs lie, and how each becomes RGB.

Knows no message and converts nothing. YUV is taken as ITU-R BT.601 of limited range, as
cv_bridge and OpenCV do; V4L2 describes nv12 and nv21.
"""

from dataclasses import dataclass
import re

import cv2

from robion_ros.config import ColorOrder
from robion_ros.nodes.refused import Refused


@dataclass(frozen=True)
class Layout:
    """How the bytes of an encoding lie in a message."""

    name: str
    """The encoding once each sample is 8 bits wide; a name that every cv_bridge knows."""
    samples: int
    """Per pixel, in one row."""
    code: int | None
    """OpenCV's conversion from name to RGB; None: it is RGB already."""
    bits: int = 8
    """Of one sample."""
    cell: tuple[int, int] = (1, 1)
    """Width and height must be multiples of it: pixels that share their colour."""
    least: int = 1
    """Least width and height: what a conversion needs around a pixel."""
    half_rows: int = 2
    """Rows of step bytes for each two rows of the image: 3 where a colour plane follows."""
    in_bridge: bool = True
    """Whether cv_bridge converts it."""

    def shape(self, width: int, height: int) -> tuple[int, int]:
        """Return the bytes of a row without padding, and the rows of an image's data."""
        return width * self.samples * self.bits // 8, height * self.half_rows // 2


PLAIN = {
    'mono': (1, cv2.COLOR_GRAY2RGB),
    'rgb': (3, None),
    'bgr': (3, cv2.COLOR_BGR2RGB),
    'rgba': (4, cv2.COLOR_RGBA2RGB),
    'bgra': (4, cv2.COLOR_BGRA2RGB),
}
# sensor_msgs names a Bayer pattern by its first four pixels, OpenCV by the second row from the
# second column on.
BAYER = {
    'bayer_rggb': cv2.COLOR_BayerBG2RGB,
    'bayer_bggr': cv2.COLOR_BayerRG2RGB,
    'bayer_gbrg': cv2.COLOR_BayerGR2RGB,
    'bayer_grbg': cv2.COLOR_BayerGB2RGB,
}
UYVY = Layout('yuv422', 2, cv2.COLOR_YUV2RGB_UYVY, cell=(2, 1))
YUYV = Layout('yuv422_yuy2', 2, cv2.COLOR_YUV2RGB_YUY2, cell=(2, 1))

LAYOUTS = {
    **{f'{name}{bits}': Layout(f'{name}8', samples, code, bits)
       for name, (samples, code) in PLAIN.items() for bits in (8, 16)},
    **{f'{name}{bits}': Layout(f'{name}8', 1, code, bits, least=3)
       for name, code in BAYER.items() for bits in (8, 16)},
    '8UC1': Layout('mono8', 1, cv2.COLOR_GRAY2RGB),
    'uyvy': UYVY,
    'yuv422': UYVY,
    'yuyv': YUYV,
    'yuv422_yuy2': YUYV,
    'nv12': Layout('nv12', 1, cv2.COLOR_YUV2RGB_NV12, cell=(2, 2), half_rows=3, in_bridge=False),
    'nv21': Layout('nv21', 1, cv2.COLOR_YUV2RGB_NV21, cell=(2, 2), half_rows=3, in_bridge=False),
}
UNORDERED = {'8UC3': '8', '8UC4': 'a8'}
"""Encodings that do not say the order of their colours, and what follows it in those that do."""
DEPTH = re.compile(r'(16U|16S|32S|32F|64F)(C1)?')
MAX_PIXELS = 16_000_000
"""Largest image that is converted, twice a 4K picture: a few bytes could claim any size and hold
up the pictures of every other robot while they are decoded."""


def check_size(width: int, height: int) -> None:
    """Raise Refused for an image without pixels or with far too many."""
    if not width or not height:
        raise Refused(f'image of {width}x{height} has no pixels')
    if width * height > MAX_PIXELS:
        raise Refused(f'image of {width}x{height} has more than {MAX_PIXELS} pixels')


def refuse_depth(encoding: str) -> None:
    """Raise Refused if encoding is that of a depth image."""
    if DEPTH.fullmatch(encoding):
        raise Refused(f'encoding {encoding!r}: depth image on a colour camera; '
                      "publish or remap the camera's colour topic")


def layout_of(encoding: str, color_order: ColorOrder) -> Layout:
    """Return the layout of an encoding, or raise Refused."""
    refuse_depth(encoding)
    name = color_order + UNORDERED[encoding] if encoding in UNORDERED else encoding
    if name not in LAYOUTS:
        raise Refused(f'encoding {encoding[:64]!r} is not supported, must be one of '
                      f'{", ".join(sorted([*LAYOUTS, *UNORDERED]))}')
    return LAYOUTS[name]
