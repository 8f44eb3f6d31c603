# SPDX-License-Identifier: Apache-2.0
"""
How Isaac-GR00T's transforms change states and actions, part by part, in float32.

A part is some values with one meaning, such as an arm's joints. What never moved in the training
has no scale: each way of scaling does with it what the source does. Knows neither files nor
models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robion_ros.models.processing import Change, IDENTITY, Span


class Range(Span):
    """From -1 to 1; what never moved is 0, and comes back as it was."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        still = self.width == 0
        scaled = (values - self.low) * 2 / np.where(still, 1, self.width) - 1
        return np.where(still, 0, scaled).astype(np.float32)


class Quantiles(Span):
    """From -1 to 1, cut off there; what never moved is only cut off."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        still = self.width == 0
        scaled = (values - self.low) * 2 / np.where(still, 1, self.width) - 1
        return np.where(still, values, scaled).clip(-1, 1).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Deviations:
    """By mean and deviation; what never moved passes as it is."""

    mean: np.ndarray
    deviation: np.ndarray

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        still = self.deviation == 0
        scaled = (values - self.mean) / np.where(still, 1, self.deviation)
        return np.where(still, values, scaled).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Turn the model's units [..., n] into the robot's, float32."""
        return (values * self.deviation + self.mean).astype(np.float32)


class Switch:
    """Off or on: 0 or 1."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's, float32."""
        return (values > 0.5).astype(np.float32)

    invert = apply


class Circle:
    """Angles as their sines, then their cosines; of states alone."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's [..., 2 n], float32."""
        return np.concatenate((np.sin(values), np.cos(values)), -1).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Raise TypeError: nothing that a robot is told to do is scaled so."""
        raise TypeError('sines and cosines are of states alone')


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotations as the first two rows of their matrices; of states alone."""

    kind: str
    """quaternion, real part first; axis_angle; or euler_angles_ and the order of r, p and y."""

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., 4 or 3] into the model's [..., 6], float32."""
        exact = np.asarray(values, np.float64)
        if self.kind == 'quaternion':
            matrix = from_quaternion(exact)
        elif self.kind == 'axis_angle':
            angle = np.linalg.norm(exact, axis=-1, keepdims=True)
            half = np.sinc(angle / (2 * np.pi)) / 2  # sin(angle / 2) / angle
            matrix = from_quaternion(np.concatenate((np.cos(angle / 2), exact * half), -1))
        else:
            axes = self.kind.rpartition('_')[2]
            first, second, third = (around('rpy'.index(axis), exact[..., index])
                                    for index, axis in enumerate(axes))
            matrix = first @ second @ third
        return matrix[..., :2, :].reshape(*exact.shape[:-1], 6).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Raise TypeError: nothing that a robot is told to do is changed so."""
        raise TypeError('rotations are changed in states alone')


@dataclass(frozen=True, eq=False)
class Parts:
    """Several parts, one behind the other."""

    sizes: Sequence[int]
    """In the robot's units, and, of actions, in the model's."""
    changes: Sequence[Change]

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Turn the robot's units [..., n] into the model's [..., m], float32."""
        return np.concatenate([change.apply(part) for change, part in self._split(values)], -1)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Turn the model's units [..., n] into the robot's, float32."""
        return np.concatenate([change.invert(part) for change, part in self._split(values)], -1)

    def _split(self, values: np.ndarray) -> Sequence[tuple[Change, np.ndarray]]:
        pieces = np.split(values, np.cumsum(self.sizes)[:-1], -1)
        return list(zip(self.changes, pieces, strict=True))


MODES: Mapping[str, Sequence[str]] = {
    'min_max': ('min', 'max'), 'q99': ('q01', 'q99'), 'mean_std': ('mean', 'std'), 'binary': (),
    'sin_cos': (), '': ()}
"""Ways of scaling, and the statistics that each needs."""


def make_change(mode: str, statistics: Mapping[str, np.ndarray]) -> Change:
    """Return a way of scaling by its name in Isaac-GR00T; sin_cos is a transform of its own."""
    if mode in ('min_max', 'q99'):
        low, high = (statistics[name] for name in MODES[mode])
        return (Range if mode == 'min_max' else Quantiles)(low, high - low)
    if mode == 'mean_std':
        return Deviations(statistics['mean'], statistics['std'])
    others: Mapping[str, Change] = {'binary': Switch(), 'sin_cos': Circle(), '': IDENTITY}
    return others[mode]


def from_quaternion(values: np.ndarray) -> np.ndarray:
    """Return the matrices [..., 3, 3] of quaternions [..., 4] of any length, real part first."""
    real, x, y, z = np.moveaxis(values, -1, 0)
    two = 2 / (values ** 2).sum(-1)
    rows = [[1 - two * (y * y + z * z), two * (x * y - z * real), two * (x * z + y * real)],
            [two * (x * y + z * real), 1 - two * (x * x + z * z), two * (y * z - x * real)],
            [two * (x * z - y * real), two * (y * z + x * real), 1 - two * (x * x + y * y)]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def around(axis: int, angles: np.ndarray) -> np.ndarray:
    """Return the matrices [..., 3, 3] of turns around an axis, 0 to 2."""
    quaternion = np.zeros((*angles.shape, 4))
    quaternion[..., 0], quaternion[..., 1 + axis] = np.cos(angles / 2), np.sin(angles / 2)
    return from_quaternion(quaternion)
