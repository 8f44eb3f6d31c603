# SPDX-License-Identifier: Apache-2.0
"""
What travels through the engine: a ticket waits, a batch runs.

Knows neither queues nor stages.
"""

from dataclasses import dataclass

import torch

from robion_ros.core import Request
from robion_ros.engine.packing import Block, Packs
from robion_ros.engine.profile import Load
from robion_ros.models.protocol import Model, Tensors


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request made ready for the device by its submitter, so that a lockstep need not."""

    request: Request
    inputs: Tensors
    """The model's VLM inputs, without the batch axis."""
    noise: torch.Tensor
    """[T, A'], from the request's seed alone."""
    submitted: float
    """s of time.monotonic()."""
    block: Block | None = None
    """Inputs and noise once more, for a model that takes them packed."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Requests of one model that run together; fixed once formed."""

    model: str
    tickets: tuple[Ticket, ...]
    """A power of two of them."""
    started: float
    """Start of the lockstep of the VLM stage, s of time.monotonic()."""

    @property
    def load(self) -> Load:
        """What a stage that runs it runs."""
        return Load(self.model, len(self.tickets))


def batch_sizes(max_batch: int) -> tuple[int, ...]:
    """Return the sizes that a batch may have, largest first."""
    return tuple(1 << power for power in reversed(range(max_batch.bit_length())))


def make_ticket(model: Model, request: Request, now: float) -> Ticket:
    """Preprocess a request; raise ValueError if the model refuses the observation."""
    inputs, noise = model.preprocess(request.observation), model.noise([request.seed])[0]
    block = model.pack(inputs, noise) if isinstance(model, Packs) else None
    return Ticket(request, inputs, noise, now, block)


def stack(tickets: tuple[Ticket, ...]) -> Tensors:
    """Stack the inputs of tickets along a new first axis."""
    return {name: torch.stack([ticket.inputs[name] for ticket in tickets])
            for name in tickets[0].inputs}
