# SPDX-License-Identifier: Apache-2.0
"""
What models do to an observation before the VLM stage and to actions after the ADiT stage.

All of it runs on the CPU for one robot at a time, in any thread. Knows no model: whatever
differs between models is an argument.
"""

from dataclasses import dataclass
import logging
from typing import Literal, Protocol

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
    if not np.isfinite(observation.state).all():
        raise ValueError('the state has values that are not finite')
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
    rows, columns = inner_size(image, size)
    scaled = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_LINEAR)
    top, left = size - rows, size - columns
    if anchor == 'centre':
        top, left = top // 2, left // 2
    padded = np.full((size, size, 3), fill, image.dtype)
    padded[top:top + rows, left:left + columns] = scaled
    return padded


def inner_size(image: np.ndarray, size: int) -> tuple[int, int]:
    """Return rows and columns of a picture [H, W, 3] scaled to fit into a square."""
    check_picture(image)
    height, width = image.shape[:2]
    ratio = max(height, width) / size
    # The quotients may fall just below a whole number. So they do where the models were
    # trained, and what counts is to see the same pixels.
    return max(1, int(height / ratio)), max(1, int(width / ratio))


def check_picture(image: np.ndarray) -> None:
    """Raise ValueError unless an array is a picture [H, W, 3]."""
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(f'the image has shape {list(image.shape)}, must be [height, width, 3]')


class Change(Protocol):
    """How the robot's units become the model's and the model's the robot's."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's [..., m], float32."""

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Turn the model's units [..., n] into the robot's, float32."""


class Units(Change, Protocol):
    """A change value by value."""

    def cut(self, size: int) -> 'Units':
        """Return the same for the first values alone."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """
    (x - offset) / scale, value by value.

    Arrays of float32 are computed with in float32, as where the model was trained.
    """

    offset: ArrayLike
    scale: ArrayLike
    divisor: ArrayLike | None = None
    """What apply divides by instead of scale, where the two are not the same."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        divisor = self.scale if self.divisor is None else self.divisor
        return np.divide(np.subtract(values, self.offset), divisor).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Turn the model's units [..., n] into the robot's, float32."""
        return np.add(np.multiply(values, self.scale), self.offset).astype(np.float32)

    def cut(self, size: int) -> 'Scaling':
        """Return the same for the first values alone."""
        if np.ndim(self.offset) == 0:
            return self
        divisor = None if self.divisor is None else np.asarray(self.divisor)[:size]
        return Scaling(np.asarray(self.offset)[:size], np.asarray(self.scale)[:size], divisor)


@dataclass(frozen=True, eq=False)
class Span:
    """From -1, at low, to 1, at low + width, value by value; what is outside stays outside."""

    low: np.ndarray
    width: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        return ((values - self.low) * 2 / self.width - 1).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Turn the model's units [..., n] into the robot's, float32."""
        return ((values + 1) * self.width / 2 + self.low).astype(np.float32)

    def cut(self, size: int) -> 'Span':
        """Return the same for the first values alone."""
        return Span(self.low[:size], self.width[:size])


IDENTITY = Scaling(0.0, 1.0)
"""The robot's units are the model's."""


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
