# SPDX-License-Identifier: Apache-2.0
"""
How the two stages of successive batches follow each other: in lockstep, or in sequence.

A pipeline's tick takes the next batch and what the last tick left in flight; it answers what ends
in it and returns what is now in flight. Nothing else is remembered between ticks. It does not
know where batches come from and where chunks go.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from robion_ros.core import ActionChunk, Dropped, DropReason, Outcome, Timings
from robion_ros.engine.batch import Batch, InFlight, stack
from robion_ros.engine.device import Device, Pending, Timed
from robion_ros.engine.profile import Load
from robion_ros.models.protocol import Model, Tensors

Answer = Callable[[Outcome], None]
"""Takes outcomes one by one, each as soon as it is there."""


@runtime_checkable
class Guarded(Protocol):
    """A model that can keep its VLM stage from crowding out an ADiT stage."""

    def vlm_beside(self, rows: Sequence[Tensors], beside: Load | None) -> Tensors:
        """Run the VLM stage of rows, inputs without the batch axis, beside an ADiT stage."""


class Pipeline(Protocol):
    """The order of stages."""

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Run one step; at least one of the two is given."""

    def close(self) -> None:
        """Free the stages."""


class Lockstep:
    """Tick k runs the VLM stage of batch k beside the ADiT stage of batch k - 1 (paper)."""

    def __init__(self, models: Mapping[str, Model], device: Device) -> None:
        self._models = models
        self._vlm = device.stage('vlm')
        self._adit = device.stage('adit')

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Launch both stages, then wait for both: the next tick starts with both streams free."""
        beside = in_flight.batch if in_flight else None
        vlm = self._vlm.launch(partial(run_vlm, self._models, batch, beside)) if batch else None
        adit = self._adit.launch(partial(run_adit, self._models, in_flight)) if in_flight else None
        if in_flight and adit:
            finish(self._models, in_flight, adit, answer)  # Leaves while the VLM may still run.
        return hand_over(batch, vlm, answer) if batch and vlm else None

    def close(self) -> None:
        """Free the stages."""
        self._vlm.close()
        self._adit.close()


class Monolithic:
    """Tick k runs both stages of batch k one after the other: the reference and baseline."""

    def __init__(self, models: Mapping[str, Model], device: Device) -> None:
        self._models = models
        self._stage = device.stage('monolithic')

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Run a batch to its end; nothing stays in flight."""
        assert batch is not None and in_flight is None, 'a monolithic tick leaves nothing behind'
        vlm = self._stage.launch(partial(run_vlm, self._models, batch, None))
        entered = hand_over(batch, vlm, answer)
        if entered:
            adit = self._stage.launch(partial(run_adit, self._models, entered))
            finish(self._models, entered, adit, answer)
        return None

    def close(self) -> None:
        """Free the stage."""
        self._stage.close()


PIPELINES: dict[str, type[Lockstep] | type[Monolithic]] = {
    'lockstep': Lockstep, 'monolithic': Monolithic}
"""By their names in config.EngineKind."""


def run_vlm(models: Mapping[str, Model], batch: Batch, beside: Batch | None) -> Tensors:
    """Run the VLM stage of a batch, beside the ADiT stage of another if there is one."""
    model = models[batch.model]
    if isinstance(model, Guarded):
        load = beside.load if beside else None
        return model.vlm_beside([ticket.inputs for ticket in batch.tickets], load)
    return model.vlm(stack(batch.tickets))


def run_adit(models: Mapping[str, Model], in_flight: InFlight) -> torch.Tensor:
    """Run the ADiT stage of a batch; returns actions [B, T, A'], on the CPU."""
    noise = torch.stack([ticket.noise for ticket in in_flight.batch.tickets])
    return models[in_flight.batch.model].adit(in_flight.context, noise)


def hand_over(batch: Batch, vlm: Pending[Tensors], answer: Answer) -> InFlight | None:
    """Wait for a batch's VLM stage; a stage that failed drops its own batch only."""
    try:  # A model may raise anything, and the requests of others must go on.
        context, seconds = vlm.result()
    except Exception as error:
        drop(batch, f'VLM stage: {describe(error)}', answer)
        return None
    return InFlight(batch, context, seconds)


def finish(models: Mapping[str, Model], in_flight: InFlight,
           adit: Pending[torch.Tensor], answer: Answer) -> None:
    """Wait for a batch's ADiT stage and answer with its chunks."""
    try:
        timed = adit.result()
    except Exception as error:
        drop(in_flight.batch, f'ADiT stage: {describe(error)}', answer)
        return
    for row in range(len(in_flight.batch.tickets)):
        answer(make_chunk(models[in_flight.batch.model], in_flight, row, timed))


def make_chunk(model: Model, in_flight: InFlight, row: int,
               adit: Timed[torch.Tensor]) -> Outcome:
    """Make the chunk of one row of a batch, or say why there is none."""
    batch = in_flight.batch
    ticket = batch.tickets[row]
    try:
        actions = model.postprocess(adit.value[row], ticket.request.observation)
        finite = np.isfinite(actions).all()
    except Exception as error:
        return Dropped(ticket.request, DropReason.FAILED,
                       f'model {batch.model}: postprocessing: {describe(error)}')
    if not finite:
        return Dropped(ticket.request, DropReason.FAILED,
                       f'model {batch.model} gave an action that is not finite')
    now = monotonic()
    timings = Timings(batch.started - ticket.submitted, in_flight.vlm_time, adit.seconds,
                      now - ticket.submitted)
    return ActionChunk(ticket.request, actions, timings, len(batch.tickets), now)


def drop(batch: Batch, detail: str, answer: Answer) -> None:
    """Drop every request of a batch."""
    for ticket in batch.tickets:
        answer(Dropped(ticket.request, DropReason.FAILED, f'model {batch.model}: {detail}'))


def describe(error: Exception) -> str:
    """Return an exception as one line."""
    return ' '.join(f'{type(error).__name__}: {error}'.split())
