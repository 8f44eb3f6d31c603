# SPDX-License-Identifier: Apache-2.0
"""
What simulated robots see: a fresh picture of noise for every camera of every request.

Pictures are windows of one block of random bytes, so that making one costs nothing at the time
it is sent. Knows neither robots nor models.
"""

import numpy as np

from robion_ros.core import Observation

SPARE = 64 * 2**20
"""Bytes in the block beyond one picture: so many places a picture can begin at."""
PROMPT = 'pick up the part and put it into the box'


class Observations:
    """A source of observations, each unlike the others."""

    def __init__(self, cameras: int, state_size: int, height: int, width: int,
                 seed: int) -> None:
        self._rng = np.random.default_rng((seed, 2))
        self._cameras, self._shape = cameras, (height, width, 3)
        self._size = height * width * 3
        self._block = np.frombuffer(self._rng.bytes(self._size + SPARE), np.uint8)
        self._state_size = state_size

    def make(self) -> Observation:
        """Return the next observation."""
        starts = self._rng.integers(0, SPARE, self._cameras)
        pictures = tuple(self._block[start:start + self._size].reshape(self._shape)
                         for start in starts.tolist())
        state = self._rng.uniform(-1, 1, self._state_size).astype(np.float32)
        return Observation(pictures, state, PROMPT, 0)
