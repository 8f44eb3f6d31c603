# SPDX-License-Identifier: Apache-2.0
"""States and actions are changed as Isaac-GR00T's transforms do it, in every way there is."""

import numpy as np
import pytest

from robion_ros.models.isaac_configs import DataConfig
from robion_ros.models.isaac_folder import Embodiment
from robion_ros.models.isaac_units import make_change, Parts, Rotation

from .golden import FOLDER, GOLDEN


@pytest.fixture(scope='module')
def robots() -> Embodiment:
    """Return the robots of the golden file that are scaled in every way."""
    modes = {kind: {key: mode for key, (mode, _) in parts.items()}
             for kind, parts in GOLDEN['gr00t'].said('modes').items()}
    data = DataConfig(('front',), tuple(modes['state']), tuple(modes['action']), modes['state'],
                      action_normalization_modes=modes['action'])
    return Embodiment(FOLDER, 'new_embodiment', 31, data,
                      GOLDEN['gr00t'].said('metadata')['new_embodiment'], ())


def numbers(name: str) -> np.ndarray:
    return GOLDEN['gr00t'].tensors[f'modes.{name}'].numpy()


def test_states_are_isaac_s(robots):
    found = robots.change('state').apply(numbers('given'))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, numbers('state'), rtol=1e-6, atol=1e-6)


def test_actions_are_isaac_s(robots):
    found = robots.change('action').invert(numbers('chunk'))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, numbers('actions'), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('mode, first, second', [
    ('min_max', 'min', 'max'), ('q99', 'q01', 'q99'), ('mean_std', 'mean', 'std')])
def test_what_never_moved_comes_back(mode, first, second):
    statistics = {first: np.float32([-3, 5]), second: np.float32([7, 5])}
    if mode == 'mean_std':
        statistics[second] = np.float32([2, 0])
    change = make_change(mode, statistics)
    back = change.invert(change.apply(np.float32([1, 5])))
    np.testing.assert_allclose(back, [1, 5], rtol=1e-6)


def turned(kind: str, values: np.ndarray) -> np.ndarray:
    """Return the matrix of a rotation, written from its meaning: what it does to the axes."""
    def around(axis: int, angle: float) -> np.ndarray:
        matrix = np.eye(3)
        first, second = [index for index in (0, 1, 2, 0, 1) if index != axis][:2]
        if axis == 1:
            first, second = 2, 0
        matrix[first, first] = matrix[second, second] = np.cos(angle)
        matrix[second, first], matrix[first, second] = np.sin(angle), -np.sin(angle)
        return matrix
    if kind.startswith('euler'):
        whole = np.eye(3)
        for axis, angle in zip(kind[-3:], values, strict=True):
            whole = whole @ around('rpy'.index(axis), angle)
        return whole
    if kind == 'quaternion':
        unit = values / np.linalg.norm(values)
        angle, axis = 2 * np.arccos(unit[0]), unit[1:] / np.linalg.norm(unit[1:])
    else:
        angle = np.linalg.norm(values)
        axis = values / angle if angle else values
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross  # Rodrigues


@pytest.mark.parametrize('kind, size', [
    ('quaternion', 4), ('axis_angle', 3), ('euler_angles_rpy', 3), ('euler_angles_ypr', 3)])
def test_rotations_are_the_first_rows_of_their_matrices(kind, size):
    values = np.random.default_rng(4).normal(size=(5, size)).astype(np.float32)
    found = Rotation(kind).apply(values)
    assert found.shape == (5, 6) and found.dtype == np.float32
    for row, one in zip(found, values, strict=True):
        np.testing.assert_allclose(row, turned(kind, one)[:2].reshape(6), atol=1e-6)
    if kind == 'axis_angle':
        assert Rotation(kind).apply(np.zeros(3, np.float32)).tolist() == [1, 0, 0, 0, 1, 0]


def test_parts_follow_each_other():
    parts = Parts((2, 1), [make_change('sin_cos', {}), make_change('binary', {})])
    assert parts.apply(np.float32([0, 0, 0.7])).tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(TypeError, match='of states alone'):
        parts.invert(np.float32([0, 0, 0.7]))
