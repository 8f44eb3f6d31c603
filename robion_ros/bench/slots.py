# SPDX-License-Identifier: Apache-2.0
"""
Rows of one model that denoise side by side, each at a step of its own, in fixed places.

On a GPU a step of the first n rows is a CUDA graph, one for each n. Nothing here waits for the
device. Knows neither requests nor threads.
"""

from collections.abc import Callable
from functools import partial

import torch

from robion_ros.engine.batch import stack
from robion_ros.engine.cuda_calls import new_stream
from robion_ros.engine.device import Device
from robion_ros.engine.graphs import Graph, warm_up
from robion_ros.engine.warm_up import example
from robion_ros.models.protocol import Model, Stepped, Tensors

ACTIONS, STEPS = 'actions', 'steps'


class Slots:
    """Places for the rows; those in use are the first ones."""

    def __init__(self, model: Stepped, context: Tensors, noise: torch.Tensor, size: int) -> None:
        """Make size places like one row: context with a batch axis, noise [T, A'] without."""
        self.size, self.steps = size, model.denoising_steps
        self._model = model
        begun = model.adit_begin(context)
        home = next(iter(begun.values())).device
        # Zeros: what is not admitted yet must not be a number that stops a kernel.
        self._begun: Tensors = {name: torch.zeros((size, *row.shape[1:]), dtype=row.dtype,
                                                  device=home) for name, row in begun.items()}
        self._actions = torch.zeros((size, *noise.shape), dtype=noise.dtype, device=home)
        self._at = torch.zeros(size, dtype=torch.int64, device=home)
        self._runs: dict[int, Callable[[], None]] = {
            count: partial(self._run, count) for count in range(1, size + 1)}
        for slot in range(size):
            self.admit(slot, context, noise)
        if home.type == 'cuda':
            self._capture(home)

    def admit(self, slot: int, context: Tensors, noise: torch.Tensor) -> None:
        """Enqueue that a row, context [1, ...] and noise [T, A'], begins in a place."""
        for name, row in self._model.adit_begin(context).items():
            self._begun[name][slot:slot + 1].copy_(row)
        self._actions[slot].copy_(noise, non_blocking=True)
        self._at[slot].zero_()

    def step(self, count: int) -> None:
        """Enqueue one denoising step of the first count rows."""
        self._runs[count]()

    def fetch(self, slot: int) -> torch.Tensor:
        """Enqueue a copy of a row's actions [T, A'] to the CPU."""
        return self._actions[slot].to('cpu', non_blocking=True, copy=True)

    def move(self, source: int, target: int) -> None:
        """Enqueue that a row takes another place."""
        for tensor in (*self._begun.values(), self._actions, self._at):
            tensor[target].copy_(tensor[source])

    def _advance(self, count: int) -> Tensors:
        begun = {name: tensor[:count] for name, tensor in self._begun.items()}
        at = self._at[:count]
        return {ACTIONS: self._model.adit_step(begun, self._actions[:count], at), STEPS: at + 1}

    def _outputs(self, count: int) -> Tensors:
        return {ACTIONS: self._actions[:count], STEPS: self._at[:count]}

    def _run(self, count: int) -> None:
        outputs = self._outputs(count)
        for name, tensor in self._advance(count).items():
            outputs[name].copy_(tensor)

    def _capture(self, device: torch.device) -> None:
        """Replace the calls by graphs, the largest first, so that the others fit in its memory."""
        # As in graphed.py: a stream of another priority than that of the VLM stage's captures,
        # so that the two share no workspace of the library of matrix products.
        with torch.cuda.device(device):
            stream, pool = new_stream(device, priority=-1), torch.cuda.graph_pool_handle()
            for count in range(self.size, 0, -1):
                function = partial(self._advance, count)
                warm_up(function, stream)
                self._runs[count] = Graph(function, self._outputs(count), stream, pool).replay


def make_slots(name: str, model: Stepped, ready: Model, device: Device, size: int) -> Slots:
    """Make places for rows of a model; ready gives the contexts."""
    ticket = example(name, ready)
    stage = device.stage('vlm')
    context = stage.launch(lambda: ready.vlm(stack((ticket,)))).result().value
    stage.close()
    return Slots(model, context, ticket.noise, size)
