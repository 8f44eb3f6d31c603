# SPDX-License-Identifier: Apache-2.0
"""
Which camera of a robot is which picture of a policy. Knows neither pictures nor architectures.

Cameras are told by their names; one that a policy has and a robot has not is left out.
"""

from collections.abc import Mapping, Sequence
import logging
from pathlib import Path

from robion_ros.config import CameraConfig, FieldError

logger = logging.getLogger(__name__)


def place_cameras(cameras: Mapping[str, CameraConfig], policy: Sequence[str],
                  renamed: Mapping[str, str], folder: Path) -> tuple[int, ...]:
    """
    Return the places, among the robot's cameras, of the pictures of a policy, in its order.

    A camera is the input that its configuration names, or else that of its own name. Where none
    of them names one, and there are as many, they are taken in the order they stand in.
    """
    wanted = [camera.input or name for name, camera in cameras.items()]
    inputs = [name if name in policy else renamed.get(name, name) for name in wanted]
    places = {name: index for index, name in enumerate(inputs)}
    known = [name for name in inputs if name in policy]
    if not known and len(inputs) == len(policy) and not any(c.input for c in cameras.values()):
        logger.info('checkpoint %s: cameras by their order: %s', folder, ', '.join(
            f'{name} is {there}' for name, there in zip(cameras, policy, strict=True)))
        return tuple(range(len(policy)))
    for name, given in zip(cameras, inputs, strict=True):
        if given not in policy:
            raise FieldError(f'cameras.{name}', f'checkpoint {folder} has no camera {given!r}, it '
                             f'has {", ".join(policy)}: write which one it is, {name}: '
                             f'{{input: {policy[0]}}}')
    if len(places) != len(inputs):
        twice = next(name for name in inputs if inputs.count(name) > 1)
        raise FieldError('cameras', f'two of them are {twice!r} of the checkpoint {folder}')
    missing = [name for name in policy if name not in places]
    if missing:
        logger.info('checkpoint %s: the robots have no %s', folder, ', '.join(missing))
    return tuple(places[name] for name in policy if name in places)
