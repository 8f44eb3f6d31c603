# SPDX-License-Identifier: Apache-2.0
"""
How the two stages of successive batches follow each other: in lockstep, or in sequence.

A pipeline's tick takes the next batch and what the last tick left in flight; it answers what ends
in it and returns what is now in flight. Nothing else is remembered between ticks. It does not
know where batches come from and where chunks go.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from robion_ros.core import ActionChunk, Dropped, DropReason, Outcome, Timings
from robion_ros.engine.batch import Batch, InFlight, stack
from robion_ros.engine.device import Device, Pending, Timed
from robion_ros.engine.packing import Block, Packs
from robion_ros.engine.profile import Load
from robion_ros.models.protocol import Model, Tensors

Answer = Callable[[Outcome], None]
"""Takes outcomes one by one, each as soon as it is there."""


Entered = tuple[Tensors, torch.Tensor]
"""What a batch enters its ADiT stage with: context and noise [B, T, A']."""


@runtime_checkable
class Guarded(Packs, Protocol):
    """A model that can keep its VLM stage from crowding out an ADiT stage."""

    def vlm_beside(self, blocks: Sequence[Block], beside: Load | None) -> Entered:
        """Run the VLM stage of packed requests beside an ADiT stage, if there is one."""


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
        chunks: Iterator[Outcome] = iter(())
        if in_flight and adit:
            in_flight.rest()
            chunks = finish(self._models, in_flight, adit)
            while vlm and not vlm.done() and (chunk := next(chunks, None)):
                answer(chunk)  # It leaves while the VLM runs.
        entered = hand_over(batch, vlm, answer) if batch and vlm else None
        rest = partial(answer_all, chunks, answer)
        if entered:  # What is left must not keep the next lockstep from being launched.
            return replace(entered, rest=rest)
        rest()
        return None

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
            answer_all(finish(self._models, entered, adit), answer)
        return None

    def close(self) -> None:
        """Free the stage."""
        self._stage.close()


PIPELINES: dict[str, type[Lockstep] | type[Monolithic]] = {
    'lockstep': Lockstep, 'monolithic': Monolithic}
"""By their names in config.EngineKind."""


def run_vlm(models: Mapping[str, Model], batch: Batch, beside: Batch | None) -> Entered:
    """Run the VLM stage of a batch, beside the ADiT stage of another if there is one."""
    model = models[batch.model]
    if isinstance(model, Guarded):
        blocks = [ticket.block for ticket in batch.tickets if ticket.block]
        return model.vlm_beside(blocks, beside.load if beside else None)
    return model.vlm(stack(batch.tickets)), torch.stack([ticket.noise for ticket in batch.tickets])


def run_adit(models: Mapping[str, Model], in_flight: InFlight) -> torch.Tensor:
    """Run the ADiT stage of a batch; returns actions [B, T, A'], on the CPU."""
    return models[in_flight.batch.model].adit(in_flight.context, in_flight.noise)


def hand_over(batch: Batch, vlm: Pending[Entered], answer: Answer) -> InFlight | None:
    """Wait for a batch's VLM stage; a stage that failed drops its own batch only."""
    try:  # A model may raise anything, and the requests of others must go on.
        (context, noise), seconds = vlm.result()
    except Exception as error:
        answer_all(dropped(batch, f'VLM stage: {describe(error)}'), answer)
        return None
    return InFlight(batch, context, noise, seconds)


def finish(models: Mapping[str, Model], in_flight: InFlight,
           adit: Pending[torch.Tensor]) -> Iterator[Outcome]:
    """Wait for a batch's ADiT stage; yield its chunks, each made when it is asked for."""
    try:
        timed = adit.result()
    except Exception as error:
        return dropped(in_flight.batch, f'ADiT stage: {describe(error)}')
    model = models[in_flight.batch.model]
    return (make_chunk(model, in_flight, row, timed)
            for row in range(len(in_flight.batch.tickets)))


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


def dropped(batch: Batch, detail: str) -> Iterator[Outcome]:
    """Yield the end of every request of a batch that failed."""
    return (Dropped(ticket.request, DropReason.FAILED, f'model {batch.model}: {detail}')
            for ticket in batch.tickets)


def answer_all(outcomes: Iterable[Outcome], answer: Answer) -> None:
    """Answer with outcomes, in order."""
    for outcome in outcomes:
        answer(outcome)


def describe(error: Exception) -> str:
    """Return an exception as one line."""
    return ' '.join(f'{type(error).__name__}: {error}'.split())
