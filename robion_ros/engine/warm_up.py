# SPDX-License-Identifier: Apache-2.0
"""
Runs of a model before its first request, so that nothing is left to be found out by a robot.

Knows pipelines by their one function, and devices not at all.
"""

from collections.abc import Mapping
from time import monotonic

import numpy as np

from robion_ros.core import Dropped, Observation, Outcome, Request
from robion_ros.engine.answers import describe
from robion_ros.engine.batch import Batch, batch_sizes, make_ticket, Ticket
from robion_ros.engine.in_flight import InFlight
from robion_ros.engine.pipelines import Pipeline
from robion_ros.models.protocol import Model


def example(name: str, model: Model) -> Ticket:
    """Return a request for a model that no robot sent; raise RuntimeError if there is none."""
    spec = model.spec
    # Not black: a GPU multiplies zeros faster than pictures.
    pictures = np.random.default_rng(0).integers(0, 256, (spec.cameras, 64, 64, 3), np.uint8)
    observation = Observation(tuple(pictures), np.zeros(spec.state_size, np.float32), 'warm up',
                              0)
    request = Request('warm_up', 0, name, observation, 0.0, 0.0)
    try:
        return make_ticket(model, request, 0.0)
    except (Exception, SystemExit) as error:
        raise RuntimeError(f'model {name} cannot preprocess: {describe(error)}') from error


class Trial:
    """
    The same runs, one after another, among the batches of models that are served already.

    next and takes are for the engine's thread.
    """

    def __init__(self, name: str, model: Model, max_batch: int) -> None:
        """Make the request that is run; raise RuntimeError if there is none."""
        self.fault = ''
        """Why the model cannot run."""
        self._name = name
        self._ticket = example(name, model)
        self._left = list(batch_sizes(max_batch))
        self._size = self._due = 0

    @property
    def ended(self) -> bool:
        """Whether no more runs come."""
        return not self._due and (bool(self.fault) or not self._left)

    def next(self, now: float) -> Batch | None:
        """Return the next batch once the one before has ended, if there is one."""
        if self._due or self.ended:
            return None
        self._size = self._due = self._left.pop(0)
        return Batch(self._name, (self._ticket,) * self._size, now)

    def takes(self, outcome: Outcome) -> bool:
        """Take an outcome if it is of a batch made here; return whether it is."""
        if outcome.request is not self._ticket.request:
            return False
        self._due -= 1
        if isinstance(outcome, Dropped):
            self.fault = f'model {self._name} fails at batch {self._size}: {outcome.detail}'
        return True


def warm_up(pipeline: Pipeline, models: Mapping[str, Model], max_batch: int) -> float:
    """
    Run every model at every batch size, largest first; raise RuntimeError if one cannot.

    Return how long the longest tick took, s.
    """
    longest = 0.0
    for name, model in models.items():
        ticket = example(name, model)
        for size in batch_sizes(max_batch):
            outcomes: list[Outcome] = []
            batch: Batch | None = Batch(name, (ticket,) * size, 0.0)
            in_flight: InFlight | None = None
            while batch or in_flight:
                start = monotonic()
                in_flight = pipeline.tick(batch, in_flight, outcomes.append)
                batch, longest = None, max(longest, monotonic() - start)
            for outcome in outcomes:
                if isinstance(outcome, Dropped):
                    raise RuntimeError(f'model {name} fails at batch {size}: {outcome.detail}')
    return longest
