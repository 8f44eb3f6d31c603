# SPDX-License-Identifier: Apache-2.0
"""
Which model's queue the next lockstep takes from (paper, section on SLO-aware serving).

A policy sees the models that wait and picks one. It knows neither tickets nor stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A queue that is not empty."""

    model: str
    length: int
    deadline: float
    """Deadline of its head, s of time.monotonic()."""
    served: int
    """Number of the lockstep that last took from it, -1 for none."""


Policy = Callable[[Sequence[Waiting]], Waiting]


def earliest_slo_first(queues: Sequence[Waiting]) -> Waiting:
    """Pick the queue whose head has the least time left."""
    return min(queues, key=lambda queue: queue.deadline)


def round_robin(queues: Sequence[Waiting]) -> Waiting:
    """Pick the queue that was served longest ago."""
    return min(queues, key=lambda queue: queue.served)


def largest_queue_first(queues: Sequence[Waiting]) -> Waiting:
    """Pick the longest queue; among equals the one whose head has the least time left."""
    return min(queues, key=lambda queue: (-queue.length, queue.deadline))


POLICIES: dict[str, Policy] = {
    'earliest_slo_first': earliest_slo_first,
    'round_robin': round_robin,
    'largest_queue_first': largest_queue_first,
}
"""By their names in config.Policy."""
