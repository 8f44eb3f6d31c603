# SPDX-License-Identifier: Apache-2.0
"""
Pictures as the code sees them that a checkpoint comes from, to the last bit where that matters.

Each function turns a picture, uint8 [H, W, 3], into a square one [S, S, 3] of values from 0 to
255, black where the picture does not reach. Knows no model.
"""

from functools import lru_cache
import math

import cv2
import numpy as np
import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.models.processing import inner_size, resize_with_pad

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
    rows, columns = inner_size(image, size)
    # Rows are done with, and rounded, before columns: so up to Pillow 12; later ones begin with
    # the columns of some pictures that stand upright, which moves values by 1.
    wide = _resampled(image.swapaxes(0, 1), columns).swapaxes(0, 1)
    scaled = torch.from_numpy(_resampled(wide, rows))
    return _centred(scaled.permute(2, 0, 1)[None], size)


@lru_cache(256)
def _taps(given: int, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places and weights, int32 [wanted, taps], of what each pixel is the mean of."""
    scale = given / wanted
    reach = max(scale, 1.0)
    centres = (np.arange(wanted)[:, None] + 0.5) * scale
    first = np.maximum((centres - reach + 0.5).astype(np.int32), 0)
    last = np.minimum((centres + reach + 0.5).astype(np.int32), given)
    places = first + np.arange((last - first).max(), dtype=np.int32)
    weights = np.maximum(1 - np.abs((places - centres + 0.5) / reach), 0) * (places < last)
    weights /= weights.sum(1, keepdims=True)
    return np.minimum(places, given - 1), (weights * ONE + 0.5).astype(np.int32)


def _resampled(lines: np.ndarray, wanted: int) -> np.ndarray:
    """Resize uint8 [given, ...] along its first axis, in whole numbers, to [wanted, ...]."""
    if len(lines) == wanted:
        return lines
    places, weights = _taps(len(lines), wanted)
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
