# SPDX-License-Identifier: Apache-2.0
"""
A lockstep that was launched, until its last chunk: what its successor is launched behind.

Knows neither queues nor why stages follow each other.
"""

from dataclasses import dataclass
from math import inf
from time import monotonic, sleep
from typing import Any

import torch

from robion_ros.engine.answers import Answer, answer_all, Clock, describe, dropped, make_chunk
from robion_ros.engine.batch import Batch
from robion_ros.engine.device import Pending
from robion_ros.engine.profile import Load
from robion_ros.models.protocol import Model, Tensors

Entered = tuple[Tensors, torch.Tensor]
"""What a batch enters its ADiT stage with: context and noise [B, T, A']."""

PAUSE = 0.0001
"""Between two looks at a device, s."""


@dataclass(frozen=True, eq=False)
class Entering:
    """A batch in its VLM stage."""

    batch: Batch
    vlm: Pending[Entered]


class Leaving:
    """A batch in its ADiT stage."""

    def __init__(self, model: Model, entering: Entering, adit: Pending[torch.Tensor],
                 clock: Clock = monotonic) -> None:
        self.adit = adit
        self._clock = clock
        self._model, self._entering = model, entering
        self._answered = False

    def answer(self, answer: Answer) -> None:
        """Wait for the stage and answer with its chunks, once."""
        if self._answered:
            return
        self._answered = True
        batch, stage = self._entering.batch, 'VLM'
        try:  # A model may raise anything, and the requests of others must go on.
            vlm_time = self._entering.vlm.result().seconds
            stage = 'ADiT'
            timed = self.adit.result()
        except KeyboardInterrupt:  # Ctrl-C, where this runs in a main thread.
            raise
        except BaseException as error:
            answer_all(dropped(batch, f'{stage} stage: {describe(error)}'), answer)
            return
        for row in range(len(batch.tickets)):
            answer(make_chunk(self._model, batch, row, vlm_time, timed, self._clock))


@dataclass(eq=False)
class InFlight:
    """Stages that were launched together."""

    stages: tuple[Pending[Any], ...]
    loads: tuple[Load | None, Load | None]
    """What runs: VLM stage and, beside it, ADiT stage."""
    entering: Entering | None
    """The batch whose ADiT stage is to come."""
    leaving: Leaving | None
    """The batch that will be answered."""
    lead: float
    """How long before the end the successor should be launched, s; 0: after it."""
    started: float
    """When the host knew the stages to run, s of time.monotonic()."""
    seconds: float = 0.0
    """How long they took, when they have ended well."""

    @property
    def models(self) -> frozenset[str]:
        """The models that run."""
        return frozenset(load.model for load in self.loads if load)


def due(in_flight: InFlight, seconds: float) -> float:
    """
    Return when the successor of stages that take so many s should be launched; inf: at their end.

    Its launch takes the host longer than the device should wait, so it comes before their end;
    no sooner than it must, since its batch is fixed with it.
    """
    return in_flight.started + seconds - in_flight.lead if in_flight.lead else inf


def approach(in_flight: InFlight, seconds: float, answer: Answer) -> None:
    """Answer what ends, until the time for the successor of stages that take so many s."""
    until = due(in_flight, seconds)
    if until == inf:
        conclude(in_flight, answer)
        return
    while monotonic() < until and not all(stage.done() for stage in in_flight.stages):
        if in_flight.leaving and in_flight.leaving.adit.done():
            in_flight.leaving.answer(answer)
        sleep(PAUSE)


def conclude(in_flight: InFlight, answer: Answer) -> None:
    """Wait for the end of all stages and answer what is not answered yet."""
    if in_flight.leaving:
        in_flight.leaving.answer(answer)
    try:  # What failed is said where its result is asked for.
        for stage in in_flight.stages:
            stage.wait()
        in_flight.seconds = max(end.since(start) for end in in_flight.stages
                                for start in in_flight.stages)
    except KeyboardInterrupt:  # Ctrl-C, where this runs in a main thread.
        raise
    except BaseException:
        in_flight.seconds = 0.0
