# SPDX-License-Identifier: Apache-2.0
"""
Pictures as GR00T N1.5 was trained to see them: squeezed into a square, whatever their sides.

Each function turns a picture, uint8 [H, W, 3], into a square one [S, S, 3], uint8. Knows no model.
"""

import numpy as np
import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.models.processing import check_picture

KEPT = 0.95
"""Of either side of a picture: training cut it at random, serving cuts around the middle."""


def squeezed(image: np.ndarray, size: int) -> Tensor:
    """Return a picture as lerobot scales it: with cubic weights, smoothed, in whole numbers."""
    check_picture(image)
    planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
    if planes.shape[2:] != (size, size):
        planes = F.interpolate(planes, (size, size), mode='bicubic', antialias=True)
    return planes[0].permute(1, 2, 0).contiguous()


def cropped(image: np.ndarray, size: int) -> Tensor:
    """Return the middle of a picture as Isaac-GR00T scales it: in float32, smoothed, cut off."""
    check_picture(image)
    rows, columns = (max(1, int(side * KEPT)) for side in image.shape[:2])
    top, left = (round((whole - part) / 2) for whole, part in
                 zip(image.shape[:2], (rows, columns), strict=True))
    middle = np.ascontiguousarray(image[top:top + rows, left:left + columns])
    planes = (torch.from_numpy(middle).float() / 255).permute(2, 0, 1)[None]
    if planes.shape[2:] != (size, size):
        planes = F.interpolate(planes, (size, size), mode='bilinear', antialias=True)
    return (planes * 255).to(torch.uint8)[0].permute(1, 2, 0).contiguous()
