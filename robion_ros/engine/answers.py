# SPDX-License-Identifier: Apache-2.0
"""
How a batch ends: with a chunk for each request, or with why there is none.

Knows neither stages nor where outcomes go.
"""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic

import numpy as np
import torch

from robion_ros.core import ActionChunk, Dropped, DropReason, Outcome, Timings
from robion_ros.engine.batch import Batch
from robion_ros.engine.device import Timed
from robion_ros.models.protocol import Model

Answer = Callable[[Outcome], None]
"""Takes outcomes one by one, each as soon as it is there."""

Clock = Callable[[], float]
"""Tells the time: s of time.monotonic(), or of one that is simulated."""


def make_chunk(model: Model, batch: Batch, row: int, vlm_time: float,
               adit: Timed[torch.Tensor], clock: Clock = monotonic) -> Outcome:
    """Make the chunk of one row of a batch, or say why there is none."""
    ticket = batch.tickets[row]
    wanted = model.spec.horizon, model.spec.action_size
    try:
        actions = model.postprocess(adit.value[row], ticket.request.observation)
        shape, finite = np.shape(actions), np.isfinite(actions).all()
    except KeyboardInterrupt:  # Ctrl-C, where this runs in a main thread.
        raise
    except BaseException as error:  # Also SystemExit, which would end the engine's thread.
        return Dropped(ticket.request, DropReason.FAILED,
                       f'model {batch.model}: postprocessing: {describe(error)}')
    if shape != wanted:
        return Dropped(ticket.request, DropReason.FAILED,
                       f'model {batch.model} gave actions of shape {list(shape)}, must be '
                       f'{list(wanted)}')
    if not finite:
        return Dropped(ticket.request, DropReason.FAILED,
                       f'model {batch.model} gave an action that is not finite')
    now = clock()
    timings = Timings(batch.started - ticket.submitted, vlm_time, adit.seconds,
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


def describe(error: BaseException) -> str:
    """Return an exception as one line, whatever it does when it is asked."""
    try:
        text = str(error).encode(errors='replace').decode()  # Or no message could carry it.
    except Exception:
        text = 'it cannot say what'
    return ' '.join(f'{type(error).__name__}: {text}'.split())
