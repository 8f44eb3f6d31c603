# SPDX-License-Identifier: Apache-2.0
"""
What models do to an observation before the VLM stage and to actions after the ADiT stage.

All of it runs on the CPU for one robot at a time, in any thread. Knows no model: whatever
differs between models is an argument.
"""

from dataclasses import dataclass
import logging
from typing import Literal

import cv2
import numpy as np
from numpy.typing import ArrayLike
import torch

from robion_ros.core import Observation
from robion_ros.models.protocol import ModelSpec

logger = logging.getLogger(__name__)

Anchor = Literal['centre', 'end']
"""Where the picture stands in its padding: in the middle, or at the bottom right."""


def check_observation(observation: Observation, spec: ModelSpec) -> None:
    """Raise ValueError unless the observation is what the model takes."""
    if len(observation.images) != spec.cameras:
        raise ValueError(f'the observation has {len(observation.images)} images, the model '
                         f'takes {spec.cameras}')
    if observation.state.shape != (spec.state_size,):
        raise ValueError(f'the state has shape {list(observation.state.shape)}, the model '
                         f'takes [{spec.state_size}]')
    if not observation.prompt.strip():
        raise ValueError(f'the prompt is {observation.prompt!r}, the model takes an '
                         'instruction of at least one word')


def resize_with_pad(image: np.ndarray, size: int, anchor: Anchor = 'centre',
                    fill: float = 0) -> np.ndarray:
    """
    Scale a picture [H, W, 3] into a square [size, size, 3] of its dtype, keeping its aspect.

    Bilinear, as pi0 and SmolVLA do it: uint8 is rounded, float32 is not. fill is the value of
    the rest, in the picture's own range.
    """
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(f'the image has shape {list(image.shape)}, must be [height, width, 3]')
    height, width = image.shape[:2]
    ratio = max(height, width) / size
    # The quotients may fall just below a whole number. So they do where the models were
    # trained, and what counts is to see the same pixels.
    rows, columns = max(1, int(height / ratio)), max(1, int(width / ratio))
    scaled = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_LINEAR)
    top, left = size - rows, size - columns
    if anchor == 'centre':
        top, left = top // 2, left // 2
    padded = np.full((size, size, 3), fill, image.dtype)
    padded[top:top + rows, left:left + columns] = scaled
    return padded


@dataclass(frozen=True, eq=False)
class Scaling:
    """How the robot's units become the model's: (x - offset) / scale, value by value."""

    offset: ArrayLike
    scale: ArrayLike

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        return np.divide(np.subtract(values, self.offset), self.scale).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Turn the model's units [..., n] into the robot's, float32."""
        return np.add(np.multiply(values, self.scale), self.offset).astype(np.float32)


def pad_values(values: np.ndarray, size: int) -> torch.Tensor:
    """Fill values [n] up with zeros to [size]."""
    return torch.from_numpy(np.pad(values, (0, size - len(values))))


def pad_tokens(tokens: list[int], size: int, padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Fill tokens up to size; return them, int64 [size], and which are real, bool [size].

    More than size are cut off, as the models' own code does, and that is logged.
    """
    if len(tokens) > size:
        logger.warning('the prompt has %d tokens, the model reads the first %d: shorten it',
                       len(tokens), size)
    kept = tokens[:size]
    rest = size - len(kept)
    return torch.tensor(kept + [padding] * rest), torch.arange(size) < len(kept)
