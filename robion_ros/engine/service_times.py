# SPDX-License-Identifier: Apache-2.0
"""
How long each model takes for a batch, learnt from its chunks: what shedding judges by.

Knows neither queues nor threads (the engine holds the lock).
"""

from collections.abc import Iterable, Mapping
from math import inf

from robion_ros.core import ActionChunk

FRESH = 1.0
"""How long an estimate holds without a chunk that confirms it, s."""


class ServiceTimes:
    """From the start of a lockstep to the chunk, by model."""

    def __init__(self, models: Iterable[str]) -> None:
        self._seconds = dict.fromkeys(models, 0.0)
        self._confirmed = dict.fromkeys(self._seconds, -inf)

    def learn(self, chunk: ActionChunk) -> None:
        """Let a chunk correct the estimate of its model."""
        model = chunk.request.model
        error = chunk.timings.engine - chunk.timings.queue - self._seconds[model]
        # A slow average: one slow lockstep must not shed requests in a burst. An estimate that
        # was too high for any chunk to come would take long to sink in this way.
        slow = chunk.finished - self._confirmed[model] < FRESH
        self._seconds[model] += 0.1 * error if slow else min(error, 0.0)
        self._confirmed[model] = chunk.finished

    def earliest_finish(self, now: float) -> Mapping[str, float]:
        """
        Return when a batch that starts now would be finished, by model.

        An estimate that no chunk confirms counts for nothing: or one slow spell would shed
        every request, and with them the chunks that could correct it, for ever.
        """
        return {model: now + (seconds if now - self._confirmed[model] < FRESH else 0.0)
                for model, seconds in self._seconds.items()}
