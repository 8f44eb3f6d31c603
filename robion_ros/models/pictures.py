# SPDX-License-Identifier: Apache-2.0
"""
Pictures as the code sees them that a checkpoint comes from, to the last bit where that matters.

A picture is uint8 [H, W, 3]; of values from 0 to 255 are those that come out, too, and black is
where a square one is not reached by its picture. Knows no model.
"""

from functools import lru_cache
import math

import cv2
import numpy as np
import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.models.processing import check_picture, inner_size, resize_with_pad

BITS = 22
"""Of the fraction of Pillow's weights."""
ONE = 1 << BITS


def plain(image: np.ndarray, size: int) -> Tensor:
    """Return a picture rounded to uint8, as fast as can be."""
    return torch.from_numpy(resize_with_pad(image, size))


def plain_at_end(image: np.ndarray, size: int) -> Tensor:
    """Return the same at the bottom right."""
    return torch.from_numpy(resize_with_pad(image, size, 'end'))


def exact(image: np.ndarray, size: int) -> Tensor:
    """Return a picture in float32, neither smoothed nor rounded, as lerobot does for pi0."""
    return _centred(_interpolated(image, size), size)


def exact_at_end(image: np.ndarray, size: int) -> Tensor:
    """Return the same at the bottom right, as lerobot does for SmolVLA."""
    planes = _interpolated(image, size)
    rows, columns = planes.shape[2:]
    return F.pad(planes, (size - columns, 0, size - rows, 0))[0].permute(1, 2, 0).contiguous()


def smoothed(image: np.ndarray, size: int) -> Tensor:
    """Return a picture in uint8, each pixel a mean of those it covers, as Pillow does."""
    scaled = torch.from_numpy(stretched(image, *inner_size(image, size), smooth=False))
    return _centred(scaled.permute(2, 0, 1)[None], size)


def quick(image: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return a picture uint8 [rows, columns, 3], bilinear, as fast as can be."""
    check_picture(image)
    return cv2.resize(image, (columns, rows), interpolation=cv2.INTER_LINEAR)


def stretched(image: np.ndarray, rows: int, columns: int, smooth: bool = True) -> np.ndarray:
    """Return a picture uint8 [rows, columns, 3], as Pillow does; smooth: bicubic, or bilinear."""
    check_picture(image)
    # Rows are done with, and rounded, before columns: so up to Pillow 12; later ones begin with
    # the columns of some pictures that stand upright, which moves values by 1.
    wide = _resampled(image.swapaxes(0, 1), columns, smooth).swapaxes(0, 1)
    return _resampled(wide, rows, smooth)


def cropped(image: np.ndarray, part: float) -> np.ndarray:
    """Return the middle of a picture, so large a part of either side."""
    rows, columns = (int(size * part) for size in image.shape[:2])
    top, left = (image.shape[0] - rows) // 2, (image.shape[1] - columns) // 2
    return image[top:top + rows, left:left + columns]


@lru_cache(256)
def _taps(given: int, wanted: int, smooth: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return places and weights, int32 [wanted, taps], of what each pixel is the mean of."""
    scale = given / wanted
    stretch = max(scale, 1.0)
    reach = stretch * (2 if smooth else 1)
    centres = (np.arange(wanted)[:, None] + 0.5) * scale
    first = np.maximum((centres - reach + 0.5).astype(np.int32), 0)
    last = np.minimum((centres + reach + 0.5).astype(np.int32), given)
    places = first + np.arange((last - first).max(), dtype=np.int32)
    away = np.abs((places - centres + 0.5) / stretch)
    weights = (_cubic(away) if smooth else np.maximum(1 - away, 0)) * (places < last)
    weights /= weights.sum(1, keepdims=True)
    # Away from zero, as Pillow rounds them.
    rounded = np.trunc(weights * ONE + np.copysign(0.5, weights)).astype(np.int32)
    return np.minimum(places, given - 1), rounded


def _cubic(away: np.ndarray) -> np.ndarray:
    near = ((1.5 * away - 2.5) * away) * away + 1
    far = (((-0.5 * away + 2.5) * away) - 4) * away + 2
    return np.where(away < 1, near, np.where(away < 2, far, 0))


def _resampled(lines: np.ndarray, wanted: int, smooth: bool) -> np.ndarray:
    """Resize uint8 [given, ...] along its first axis, in whole numbers, to [wanted, ...]."""
    if len(lines) == wanted:
        return lines
    places, weights = _taps(len(lines), wanted, smooth)
    total = np.full((wanted, *lines.shape[1:]), ONE // 2, np.int32)
    for place, weight in zip(places.T, weights.T, strict=True):
        total += lines[place] * weight[:, None, None]
    return np.clip(total >> BITS, 0, 255).astype(np.uint8)


def _interpolated(image: np.ndarray, size: int) -> Tensor:
    inner = inner_size(image, size)
    if all(map(_is_binary, image.shape, inner)):
        # Places between pixels are without error however they are computed: as cameras of
        # 640x480 have it in 512x512; three times faster.
        scaled = cv2.resize(image.astype(np.float32), inner[::-1], interpolation=cv2.INTER_LINEAR)
        return torch.from_numpy(scaled).permute(2, 0, 1)[None]
    planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None].float()
    return F.interpolate(planes, inner, mode='bilinear').clamp(0, 255)


def _is_binary(given: int, wanted: int) -> bool:
    """Return whether given / wanted is a whole number of halves, quarters or the like."""
    parts = wanted // math.gcd(given, wanted)
    return parts & (parts - 1) == 0


def _centred(planes: Tensor, size: int) -> Tensor:
    rows, columns = planes.shape[2:]
    top, left = (size - rows) // 2, (size - columns) // 2
    padded = F.pad(planes, (left, size - columns - left, top, size - rows - top))
    return padded[0].permute(1, 2, 0).contiguous()
