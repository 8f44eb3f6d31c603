# SPDX-License-Identifier: Apache-2.0
"""
How the two stages of successive batches follow each other: in lockstep, or in sequence.

A pipeline's tick launches the next batch behind what the last tick left in flight, brings that
to its end, and returns what is now in flight. Nothing else is remembered between ticks; the model
of a batch is looked up for each stage, since others may come and go meanwhile. It does not know
where batches come from and where chunks go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Protocol, runtime_checkable

import torch

from robion_ros.engine.answers import Answer, answer_all, Clock, describe, dropped
from robion_ros.engine.batch import Batch, stack
from robion_ros.engine.device import Pending, Stages
from robion_ros.engine.in_flight import conclude, Entered, Entering, InFlight, Leaving
from robion_ros.engine.packing import Block, Packs
from robion_ros.engine.profile import Load
from robion_ros.models.protocol import Model, Tensors


@runtime_checkable
class Guarded(Packs, Protocol):
    """A model that can keep its stages from crowding out others beside them."""

    def vlm_beside(self, blocks: Sequence[Block], beside: Load | None) -> Entered:
        """Run the VLM stage of packed requests beside an ADiT stage, if there is one."""

    def adit_beside(self, context: Tensors, noise: torch.Tensor,
                    beside: Load | None) -> torch.Tensor:
        """Run the ADiT stage beside a VLM stage, if there is one; the actions, on the CPU."""


class Pipeline(Protocol):
    """The order of stages."""

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Run one step; at least one of the two is given."""

    def close(self) -> None:
        """Free the stages."""


class Lockstep:
    """Tick k runs the VLM stage of batch k beside the ADiT stage of batch k - 1 (paper)."""

    def __init__(self, models: Mapping[str, Model], device: Stages,
                 clock: Clock = monotonic) -> None:
        self._models, self._lead, self._clock = models, device.lead, clock
        self._vlm = device.stage('vlm')
        self._adit = device.stage('adit')

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Launch both stages behind those in flight, then wait for these."""
        after = in_flight.stages if in_flight else ()
        before = in_flight.entering if in_flight else None
        entered = hand_over(before, answer) if before else None
        beside = before.batch.load if before and entered else None
        entering = leaving = None
        stages: list[Pending[Any]] = []
        if batch:  # First, since it is the longer stage.
            vlm = self._vlm.launch(partial(run_vlm, self._models, batch, beside), after)
            entering = Entering(batch, vlm)
            stages.append(vlm)
        if before and entered:
            adit = self._adit.launch(partial(run_adit, self._models, before.batch, entered,
                                             batch.load if batch else None), after)
            leaving = Leaving(self._models[before.batch.model], before, adit, self._clock)
            stages.append(adit)
        if in_flight:
            conclude(in_flight, answer)
        if not stages:
            return None
        return InFlight(tuple(stages), (batch.load if batch else None, beside), entering, leaving,
                        self._lead, self._clock())

    def close(self) -> None:
        """Free the stages."""
        self._vlm.close()
        self._adit.close()


class Monolithic:
    """Tick k runs both stages of batch k one after the other: the reference and baseline."""

    def __init__(self, models: Mapping[str, Model], device: Stages,
                 clock: Clock = monotonic) -> None:
        self._models, self._lead, self._clock = models, device.lead, clock
        self._stage = device.stage('monolithic')

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Launch a batch behind the one in flight, then wait for that one."""
        launched = None
        if batch:
            vlm = self._stage.launch(partial(run_vlm, self._models, batch, None))
            adit = self._stage.launch(partial(enter_adit, self._models, batch, vlm))
            leaving = Leaving(self._models[batch.model], Entering(batch, vlm), adit, self._clock)
            launched = InFlight((vlm, adit), (batch.load, None), None, leaving, self._lead,
                                self._clock())
        if in_flight:
            conclude(in_flight, answer)
        return replace(launched, started=self._clock()) if launched else None

    def close(self) -> None:
        """Free the stage."""
        self._stage.close()


PIPELINES: dict[str, type[Lockstep] | type[Monolithic]] = {
    'lockstep': Lockstep, 'monolithic': Monolithic}
"""By their names in config.EngineKind."""


def run_vlm(models: Mapping[str, Model], batch: Batch, beside: Load | None) -> Entered:
    """Run the VLM stage of a batch, beside an ADiT stage if there is one."""
    model = models[batch.model]
    if isinstance(model, Guarded):
        return model.vlm_beside([ticket.block for ticket in batch.tickets if ticket.block],
                                beside)
    return model.vlm(stack(batch.tickets)), torch.stack([ticket.noise for ticket in batch.tickets])


def run_adit(models: Mapping[str, Model], batch: Batch, entered: Entered,
             beside: Load | None = None) -> torch.Tensor:
    """
    Run the ADiT stage of a batch, beside a VLM stage if there is one.

    Returns actions [B, T, A'], on the CPU.
    """
    model = models[batch.model]
    if isinstance(model, Guarded):
        return model.adit_beside(*entered, beside)
    return model.adit(*entered)


def enter_adit(models: Mapping[str, Model], batch: Batch, vlm: Pending[Entered]) -> torch.Tensor:
    """Run the ADiT stage of a batch in the stage that its VLM stage was launched in."""
    return run_adit(models, batch, vlm.handed())


def hand_over(entering: Entering, answer: Answer) -> Entered | None:
    """Return what a batch enters its ADiT stage with; a VLM stage that failed drops its own."""
    try:  # A model may raise anything, and the requests of others must go on.
        return entering.vlm.handed()
    except KeyboardInterrupt:  # Ctrl-C, where this runs in a main thread.
        raise
    except BaseException as error:
        answer_all(dropped(entering.batch, f'VLM stage: {describe(error)}'), answer)
        return None
