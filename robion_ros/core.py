# SPDX-License-Identifier: Apache-2.0
"""
The data that flows through the system, one frozen type for each stage of its life.

Observation -> Request -> ActionChunk or Dropped. Knows neither ROS nor torch.
Axis letters: H, W image rows and columns, S state size, T steps of a chunk, A action size.
"""

from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

import numpy as np


@dataclass(frozen=True, eq=False)
class Observation:
    """What one robot saw and felt at one moment, in the order its model wants it."""

    images: tuple[np.ndarray, ...]
    """One uint8 [H, W, 3] RGB picture per camera of the model; sizes may differ."""
    state: np.ndarray
    """float32 [S], joint positions in the model's joint order, rad or m."""
    prompt: str
    """The instruction, never empty."""
    stamp_ns: int
    """Stamp of the oldest image, ns of the robot's ROS clock; 0 is unknown."""


@dataclass(frozen=True, eq=False)
class Request:
    """One observation to be answered by exactly one chunk before its deadline."""

    robot: str
    number: int
    """Grows by at least one from request to request of a robot, also when the robot moves."""
    model: str
    observation: Observation
    arrived: float
    """When the observation was complete at the server, s of time.monotonic()."""
    deadline: float
    """arrived + the model's SLO, s of time.monotonic()."""

    @property
    def seed(self) -> int:
        """
        Seed of the request's noise, 0 <= seed < 2**63.

        It depends on the robot and the request number alone, so an answer does not depend on
        who shared its batch or which server gave it.
        """
        digest = blake2b(f'{self.robot}#{self.number}'.encode(), digest_size=8).digest()
        return int.from_bytes(digest, 'little') >> 1


@dataclass(frozen=True)
class Timings:
    """Where a request's time went, s."""

    queue: float
    """From the engine's submit to the start of the lockstep that ran its VLM stage."""
    vlm: float
    adit: float
    engine: float
    """From the engine's submit to the finished chunk: queue, both stages and waiting."""


@dataclass(frozen=True, eq=False)
class ActionChunk:
    """The answer to one request."""

    request: Request
    actions: np.ndarray
    """float32 [T, A], finite, in the units of the robot."""
    timings: Timings
    batch: int
    """Requests that shared the batch, >= 1."""
    finished: float
    """s of time.monotonic()."""

    @property
    def deadline_met(self) -> bool:
        """Whether the chunk was finished before the request's deadline."""
        return self.finished <= self.request.deadline


class DropReason(Enum):
    """Why a request got no chunk."""

    SUPERSEDED = 'superseded'
    """A newer request of the same robot took its place in the queue."""
    SHED = 'shed'
    """Its deadline could no longer be met and the server sheds such requests."""
    FAILED = 'failed'
    """The observation could not be read, or the model failed or gave a value not finite."""
    CANCELLED = 'cancelled'
    """The robot's instruction changed, or the engine stopped, before it ran."""


@dataclass(frozen=True, eq=False)
class Dropped:
    """The other end of a request: counted, never silent."""

    request: Request
    reason: DropReason
    detail: str = ''


Outcome = ActionChunk | Dropped
