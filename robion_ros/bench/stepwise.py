# SPDX-License-Identifier: Apache-2.0
"""
Stages in threads of their own with a buffer between, inspected at every denoising step.

How servers for pipelines of any stages batch continuously: the ADiT stage runs one step for all
rows that it has, waits for the device, lets finished rows out and waiting ones in. Knows
neither queues nor deadlines; of a model it knows its places for rows.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition, Thread
from time import monotonic

import torch

from robion_ros.bench.slots import Slots
from robion_ros.core import ActionChunk, Outcome
from robion_ros.engine.answers import Answer, answer_all, describe, dropped, make_chunk
from robion_ros.engine.batch import Batch
from robion_ros.engine.device import Device, Timed
from robion_ros.engine.in_flight import Entered, Entering, InFlight
from robion_ros.engine.pipelines import hand_over, run_vlm
from robion_ros.models.protocol import Model


@dataclass(eq=False)
class Row:
    """A request between the stages or in the ADiT stage."""

    alone: Batch
    """As a batch of one."""
    entered: Entered
    """Its rows of context and noise."""
    vlm_time: float
    """s."""
    company: int
    """Requests of its VLM batch."""
    answer: Answer
    begun: float = 0.0
    """When it entered the ADiT stage, s of time.monotonic()."""
    left: int = 0
    """Denoising steps to go."""


class Buffer:
    """Rows that wait for the ADiT stage, in order, up to a number."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._rows: deque[Row] = deque()
        self._closed = False
        self._changed = Condition()

    def put(self, row: Row) -> None:
        """Add a row; wait while there is no room."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._rows) < self._room)
            self._rows.append(row)
            self._changed.notify_all()

    def take(self, fits: Callable[[Row], bool], wait: bool) -> list[Row]:
        """Take out the rows that fit, each asked once and in order; wait for one if told to."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._rows or self._closed)
            found, kept = list[Row](), deque[Row]()
            for row in self._rows:
                (found if fits(row) else kept).append(row)
            self._rows = kept
            self._changed.notify_all()
        return found

    def close(self) -> None:
        """Let nobody wait for rows any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


@dataclass(eq=False)
class Running:
    """The rows of one model in the ADiT stage; the i-th is in place i."""

    slots: Slots
    rows: list[Row] = field(default_factory=list)

    def advance(self, entering: list[Row]) -> list[tuple[Row, torch.Tensor]]:
        """Enqueue a step with new rows; return those that it finishes and their actions."""
        for row in entering:
            self.slots.admit(len(self.rows), row.entered[0], row.entered[1][0])
            row.begun, row.left = monotonic(), self.slots.steps
            self.rows.append(row)
        if self.rows:
            self.slots.step(len(self.rows))
        finished = []
        for place in reversed(range(len(self.rows))):
            row = self.rows[place]
            row.left -= 1
            if not row.left:
                finished.append((row, self.slots.fetch(place)))
                # Every row behind this one goes on, so the last fills the gap.
                last = self.rows.pop()
                if last is not row:
                    self.slots.move(len(self.rows), place)
                    self.rows[place] = last
        return finished[::-1]


class Stepwise:
    """A pipeline whose tick is a VLM stage; the ADiT stage runs in a thread of its own."""

    def __init__(self, models: Mapping[str, Model], slots: Mapping[str, Slots], device: Device,
                 room: int) -> None:
        self._models = models
        self._running = {name: Running(places) for name, places in slots.items()}
        self._vlm, self._adit = device.stage('vlm'), device.stage('adit')
        self._buffer = Buffer(room)
        self._thread = Thread(target=self._run, name='stepwise', daemon=True)
        self._thread.start()

    def tick(self, batch: Batch | None, in_flight: InFlight | None,
             answer: Answer) -> InFlight | None:
        """Run a batch's VLM stage and put its rows into the buffer; nothing stays in flight."""
        assert batch is not None and in_flight is None, 'a tick leaves nothing behind'
        vlm = self._vlm.launch(partial(run_vlm, self._models, batch, None))
        vlm.wait()
        if entered := hand_over(Entering(batch, vlm), answer):
            context, noise = entered
            for index, ticket in enumerate(batch.tickets):
                row = slice(index, index + 1)
                own = {name: tensor[row] for name, tensor in context.items()}, noise[row]
                self._buffer.put(Row(Batch(batch.model, (ticket,), batch.started), own,
                                     vlm.result().seconds, len(batch.tickets), answer))
        return None

    def close(self) -> None:
        """Finish what is in the buffer and free the stages."""
        self._buffer.close()
        self._thread.join()
        self._vlm.close()
        self._adit.close()

    def _run(self) -> None:
        while True:
            free = {name: running.slots.size - len(running.rows)
                    for name, running in self._running.items()}
            busy = any(running.rows for running in self._running.values())

            def fits(row: Row, free: dict[str, int] = free) -> bool:
                free[row.alone.model] -= 1
                return free[row.alone.model] >= 0
            entering = self._buffer.take(fits, wait=not busy)
            if not entering and not busy:
                return
            self._step(entering)

    def _step(self, entering: list[Row]) -> None:
        """Run one step of every model that has rows; a failure drops all that were in it."""
        involved = [*entering, *(row for running in self._running.values()
                                 for row in running.rows)]
        try:  # A model may raise anything, and the requests of others must go on.
            finished = self._adit.launch(partial(self._advance, entering)).result().value
        except Exception as error:
            for running in self._running.values():
                running.rows.clear()
            for row in involved:
                answer_all(dropped(row.alone, f'ADiT stage: {describe(error)}'), row.answer)
            return
        now = monotonic()
        for row, actions in finished:
            row.answer(self._chunk(row, actions, now))

    def _advance(self, entering: list[Row]) -> list[tuple[Row, torch.Tensor]]:
        return [done for name, running in self._running.items()
                for done in running.advance([row for row in entering
                                             if row.alone.model == name])]

    def _chunk(self, row: Row, actions: torch.Tensor, now: float) -> Outcome:
        made = make_chunk(self._models[row.alone.model], row.alone, 0, row.vlm_time,
                          Timed(actions[None], now - row.begun))
        return replace(made, batch=row.company) if isinstance(made, ActionChunk) else made
