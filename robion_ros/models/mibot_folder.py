# SPDX-License-Identifier: Apache-2.0
"""
The folder that Xiaomi publishes a policy in: config.json and preprocessor_config.json.

The first has the sizes of the network, the second how pictures are scaled and, by kind of robot,
the statistics of its actions. What Xiaomi's clients do before the model is code there; what this
needs of that may be added to config.json. Knows no network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import math
from pathlib import Path
from typing import Any

import numpy as np

from robion_ros.config import nearest
from robion_ros.models.folder import CheckpointError, CONFIG, Fields, read_json, unfold

PREPROCESSOR = 'preprocessor_config.json'
LEAST_PIXELS, MOST_PIXELS = 56 * 56, 28 * 28 * 1280
"""Of a picture, where the folder does not say min_pixels and max_pixels."""
MOVES = 1e-5
"""Least deviation of a value of an action that a robot has."""
BICUBIC = 3
MOST_SIDE = 8192
"""Rows or columns of a picture."""


@dataclass(frozen=True)
class Client:
    """What Xiaomi's client of a kind of robot does."""

    views: Mapping[str, str]
    """Camera -> what the prompt calls it."""
    sizes: Mapping[str, tuple[int, int]]
    """Rows and columns that a camera's pictures are brought to first."""
    crop: float = 1.0
    """Part of each side that is kept."""


SQUARE = 256, 256
TWO = {'base': 'Base View', 'wrist_left': 'Left-Wrist View'}
CALVIN = Client(TWO, {'base': (200, 200), 'wrist_left': (84, 84)}, 0.95)
CLIENTS = {
    'libero_all': Client(TWO, dict.fromkeys(TWO, SQUARE)),
    'calvin_abcd_orig': CALVIN,
    'calvin_abc_orig': CALVIN,
    'fractal_delta': Client({'base': 'Ego View'}, {'base': (256, 320)}, 0.95),
    'bridge_delta': Client({'base': 'Base View'}, {'base': SQUARE}, 0.95),
}
"""By the kind of robot of the published checkpoints."""


@dataclass(frozen=True)
class Statistics:
    """What the actions of a kind of robot are scaled by: float32 [T, A'] each."""

    mean: np.ndarray
    deviation: np.ndarray

    @property
    def active(self) -> np.ndarray:
        """float32 [T, A']: 1 for the values of an action that the robot has."""
        return (self.deviation > MOVES).astype(np.float32)


@dataclass(frozen=True)
class MibotFolder:
    """What the folder holds beside the weights."""

    folder: Path
    fields: Fields
    """Of config.json."""
    pictures: Fields
    """Of preprocessor_config.json."""

    @property
    def robots(self) -> tuple[str, ...]:
        """Return the kinds of robots that there are statistics of."""
        return tuple(self._action_config())

    @property
    def robot(self) -> str:
        """Return the kind of robot that is served."""
        known = self.robots
        chosen = self.fields.read('robot_type', str, known[0] if len(known) == 1 else '')
        if not chosen:
            raise CheckpointError(f'checkpoint {self.folder} has statistics of several robots, '
                                  f'{", ".join(known)}: write one of these as robot_type into '
                                  f'{CONFIG}')
        if chosen not in known:
            raise CheckpointError(f'{self.fields.path}: robot_type is {chosen!r}, {PREPROCESSOR} '
                                  f'has no statistics of it; {nearest(chosen, known)}')
        return chosen

    @property
    def client(self) -> Client:
        """Return what is done before the model: as published, but for what config.json says."""
        known = CLIENTS.get(self.robot, CLIENTS['libero_all'])
        views = self.fields.read('views', dict, dict(known.views))
        sizes: dict[str, Any] = {name: known.sizes.get(name, SQUARE) for name in views}
        sizes |= self.fields.read('image_sizes', dict, {})
        for name, size in sizes.items():
            if name not in views or not (isinstance(size, list | tuple) and len(size) == 2 and all(
                    type(side) is int and 0 < side <= MOST_SIDE for side in size)):
                raise CheckpointError(
                    f'{self.fields.path}: image_sizes.{name} is {size!r}: must be a list of '
                    f'rows and columns, from 1 to {MOST_SIDE}, and {name} one of '
                    f'{", ".join(views)}')
        crop = self.fields.read('crop_ratio', float, known.crop)
        if not (0 < crop <= 1 and views and all(isinstance(view, str) for view in views.values())):
            raise CheckpointError(f'{self.fields.path}: crop_ratio {crop} must be above 0 and '
                                  f'at most 1, and views {views} names by camera')
        return Client(views, {name: (size[0], size[1]) for name, size in sizes.items()}, crop)

    def statistics(self, robot: str) -> Statistics:
        """Return the statistics of the actions of a kind of robot."""
        entry = self._action_config()[robot]
        try:
            mean, deviation = (np.asarray(unfold(entry, name, list), np.float32)
                               for name in ('mean', 'std'))
            if mean.ndim != 2 or mean.shape != deviation.shape or not mean.size or not (
                    np.isfinite(mean).all() and np.isfinite(deviation).all()):
                raise ValueError('mean and std must be lists of as many steps of as many finite '
                                 'numbers')
            if not (deviation > MOVES).any():
                raise ValueError(f'no deviation is above {MOVES}')
        except (OverflowError, TypeError, ValueError) as error:
            raise CheckpointError(f'{self.pictures.path}: action_config.{robot}: '
                                  f'{error}') from error
        return Statistics(mean, deviation)

    def seen_size(self, rows: int, columns: int, factor: int) -> tuple[int, int]:
        """Return the rows and columns of pixels that the network sees of a picture."""
        # The library's processor that this is served with reads these, and not size.
        limits = [self.pictures.values.get(key) or default for key, default in (
            ('min_pixels', LEAST_PIXELS), ('max_pixels', MOST_PIXELS))]
        if not all(type(limit) is int and 0 < limit <= MOST_SIDE ** 2 for limit in limits):
            raise CheckpointError(f'{self.pictures.path}: min_pixels and max_pixels are '
                                  f'{limits}, must be whole numbers from 1 to {MOST_SIDE ** 2}')
        return smart_size(rows, columns, factor, limits[0], limits[1])

    def pixels(self) -> tuple[float, list[float], list[float]]:
        """Return the factor, the means and the deviations that pixels are scaled by."""
        values = self.pictures.values
        wanted = {'do_resize': True, 'do_rescale': True, 'do_normalize': True,
                  'resample': BICUBIC}
        for key, value in wanted.items():
            if values.get(key, value) != value:
                raise CheckpointError(f'{self.pictures.path}: {key} is {values[key]!r}, only '
                                      f'{value!r} is served')
        try:
            mean, deviation = (unfold(values, f'image_{name}', list) for name in ('mean', 'std'))
            factor = float(values.get('rescale_factor', 1 / 255))
            if not len(mean) == len(deviation) == 3 or 0 in deviation or not (
                    np.isfinite([factor, *map(float, mean), *map(float, deviation)]).all()):
                raise ValueError('image_mean and image_std must have three numbers, the latter '
                                 'not 0, and these and rescale_factor must be finite')
            return factor, [float(each) for each in mean], [float(each) for each in deviation]
        except (OverflowError, TypeError, ValueError) as error:
            raise CheckpointError(f'{self.pictures.path}: {error}') from error

    def _action_config(self) -> Mapping[str, Any]:
        found = self.pictures.read('action_config', dict)
        if not found:
            raise CheckpointError(f'{self.pictures.path}: action_config is empty')
        return found


def read_mibot(folder: Path) -> MibotFolder:
    """Read what the folder holds beside the weights."""
    fields, pictures = (Fields(folder / name, read_json(folder, name))
                        for name in (CONFIG, PREPROCESSOR))
    return MibotFolder(folder, fields, pictures)


def smart_size(rows: int, columns: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Return multiples of factor nearest to a size, whose product is from least to most."""
    found = [round(size / factor) * factor for size in (rows, columns)]
    if math.prod(found) > most:
        ratio = math.sqrt(rows * columns / most)
        found = [max(factor, math.floor(size / ratio / factor) * factor)
                 for size in (rows, columns)]
    elif math.prod(found) < least:
        ratio = math.sqrt(least / (rows * columns))
        found = [math.ceil(size * ratio / factor) * factor for size in (rows, columns)]
    return found[0], found[1]
