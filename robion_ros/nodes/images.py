# SPDX-License-Identifier: Apache-2.0
"""
Turn camera messages into RGB pictures, or say why not.

inspect looks at sizes and markers, not at pixels: it belongs into the subscription's callback,
so that a bad frame never takes the place of a good one. to_rgb does the work, in any thread.
Both know neither robot nor topic and keep nothing: warnings are returned, to be said once.
"""

from typing import Any

import cv2
import numpy as np
from sensor_msgs.msg import CompressedImage, Image

from robion_ros.config import ColorOrder
from robion_ros.nodes.bridge import find_cv_bridge, through_bridge
from robion_ros.nodes.encoded import check_encoded, decode
from robion_ros.nodes.layouts import check_size, Layout, layout_of, UNORDERED
from robion_ros.nodes.refused import Refused

__all__ = ['Refused', 'inspect', 'to_rgb']


def inspect(message: Image | CompressedImage) -> tuple[str, ...]:
    """
    Raise Refused unless the message can be an image; return what to warn of.

    The time it takes does not grow with the image. Damage inside compressed data shows in
    to_rgb only.
    """
    if isinstance(message, CompressedImage):
        return check_encoded(message)
    return _check_raw(message, layout_of(message.encoding, 'bgr'))


def to_rgb(message: Image | CompressedImage, color_order: ColorOrder) -> np.ndarray:
    """
    Convert to uint8 [H, W, 3] RGB, C-contiguous, or raise Refused.

    color_order is that of 8UC3 and 8UC4. Where nothing is to be converted (packed rgb8 without
    cv_bridge) the result is a view of message.data and keeps it alive; it must not be written
    to. Everything else is a copy.
    """
    if isinstance(message, CompressedImage):
        check_encoded(message)
        return decode(message)
    layout = layout_of(message.encoding, color_order)
    _check_raw(message, layout)
    samples = _samples(message, layout)
    bridge, _ = find_cv_bridge()
    if bridge is not None and layout.in_bridge:
        picture = through_bridge(bridge, samples, layout.name)
        if picture is not None:
            return picture
    if layout.code is None:
        return np.ascontiguousarray(samples)
    return cv2.cvtColor(samples, layout.code)


def _check_raw(message: Any, layout: Layout) -> tuple[str, ...]:
    width, height, size = message.width, message.height, len(message.data)
    what = f'{message.encoding} image of {width}x{height}'
    check_size(width, height)
    if width % layout.cell[0] or height % layout.cell[1]:
        raise Refused(f'{what}: size must be a multiple of {layout.cell[0]}x{layout.cell[1]}')
    if min(width, height) < layout.least:
        raise Refused(f'{what}: size must be at least {layout.least}x{layout.least}')
    row, rows = layout.shape(width, height)
    if 0 < message.step < row:
        raise Refused(f'{what}: step is {message.step} bytes, a row takes {row}; '
                      'encoding or width is wrong')
    needed = (message.step or row) * rows
    if size < needed or (size > needed and not message.step):
        raise Refused(f'{what} with step {message.step}: data has {size} bytes, must be {needed}')
    warnings = []
    if size > needed:
        warnings.append(f'{what}: data has {size} bytes, only the first {needed} are used')
    if not message.step:
        warnings.append(f'{what}: step is 0, taken as {row} bytes, rows without padding')
    if message.encoding in UNORDERED:
        warnings.append(f'encoding {message.encoding} does not say the order of its colours: '
                        "taken as the camera's color_order says")
    return tuple(warnings)


def _samples(message: Any, layout: Layout) -> np.ndarray:
    """Return a uint8 [rows, W, samples] view of the data, of 16-bit samples the high bytes."""
    row, rows = layout.shape(message.width, message.height)
    step = message.step or row
    data = np.frombuffer(message.data, np.uint8, count=step * rows).reshape(rows, step)[:, :row]
    if layout.bits == 16:
        data = data[:, 0 if message.is_bigendian else 1::2]
    return data.reshape(rows, message.width, layout.samples)
