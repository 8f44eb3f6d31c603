# SPDX-License-Identifier: Apache-2.0
"""
Robots, data and sizes of the golden files of GR00T N1.5, made up.

Knows nothing of any package.
"""

import numpy as np
from PIL import Image

IMAGE_SIZE, TOKENS, VOCABULARY = 56, 16, 360
WIDTH, HIDDEN, DIT_HEADS, DIT_SIZE = 32, 12, 4, 4
STATE, ACTION, STATES, ACTIONS, HORIZON, STEPS = 8, 7, 10, 9, 5, 4
PROMPTS = 'pick', "put_the blue ball\ninto 'the' box ", 'öffne die Tür and close the drawer'
CAMERAS = 'front', 'wrist'
RESOLUTIONS = (96, 72), (96, 72)
"""Width and height; Isaac-GR00T wants one for all cameras."""
PARTS = {'state': {'arm': 3, 'gripper': 1, 'wrist': 4}, 'action': {'arm': 6, 'gripper': 1}}
OTHER = {
    'state': {'raw': ('', 2), 'speed': ('mean_std', 2), 'joints': ('sin_cos', 3),
              'open': ('binary', 1), 'pose': ('q99', 3)},
    'action': {'pose': ('q99', 3), 'speed': ('mean_std', 2), 'open': ('binary', 1),
               'raw': ('', 2), 'arm': ('min_max', 3)}}
"""Parts of a robot that is scaled in every way there is, without a network."""


def numbers(size: int, seed: int) -> dict[str, list[float]]:
    """Return statistics of so many values, one of which never moves."""
    rng = np.random.default_rng(seed)
    low, width = rng.uniform(-90, 30, size), rng.uniform(0.05, 60, size)
    width[2] = 0
    found = {'max': low + width, 'min': low, 'mean': low + width / 3, 'std': width / 4,
             'q01': low + width / 10, 'q99': low + width * 0.9}
    return {name: np.float32(values).tolist() for name, values in found.items()}


def cut(statistics, begin: int, size: int) -> dict[str, list[float]]:
    """Return the statistics of a part of the values."""
    return {name: (values * 2)[begin:begin + size] for name, values in statistics.items()}


def metadata_of(parts, seed: int = 0) -> dict:
    """Return what Isaac-GR00T saves of a data set, of parts of so many values."""
    sizes = {kind: {key: size for key, size in of.items()} for kind, of in parts.items()}
    described = {kind: {key: {'absolute': True, 'rotation_type': None, 'shape': [size],
                              'continuous': True} for key, size in of.items()}
                 for kind, of in sizes.items()}
    described['video'] = {camera: {'resolution': list(resolution), 'channels': 3, 'fps': 20.0}
                          for camera, resolution in zip(CAMERAS, RESOLUTIONS, strict=True)}
    statistics = {kind: {key: cut(numbers(STATE, seed), sum(list(of.values())[:index]), size)
                         for index, (key, size) in enumerate(of.items())}
                  for kind, of in sizes.items()}
    return {'new_embodiment': {'statistics': statistics, 'modalities': described,
                               'embodiment_tag': 'new_embodiment'}}


def observe(number: int) -> dict[str, np.ndarray]:
    """Return what a robot sees: smooth pictures with some noise, and a state."""
    rng = np.random.default_rng(number)
    seen = {}
    for camera, (width, height) in zip(CAMERAS, RESOLUTIONS, strict=True):
        blocks = rng.integers(0, 200, (4, 5, 3), dtype=np.uint8)
        picture = np.array(Image.fromarray(blocks).resize((width, height), Image.BICUBIC))
        seen[camera] = picture + rng.integers(0, 50, picture.shape, dtype=np.uint8)
    if number == 1:
        del seen[CAMERAS[1]]
    limits = [numbers(STATE, 0)[name] for name in ('min', 'max')]
    seen['state'] = (np.float32(rng.uniform(-0.1, 1.1, STATE)) * (
        np.subtract(*limits[::-1]) + 0.1) + limits[0]).astype(np.float32)
    return seen
