# SPDX-License-Identifier: Apache-2.0
"""
The ADiT stage of a model as CUDA graphs: one for each batch size and cut.

A stage that leaves its part of the GPU is two graphs, one after the other. Knows neither the VLM
stage nor how cuts are chosen.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch

from robion_ros.engine.graphs import Graph, Pool, warm_up
from robion_ros.engine.partition import held_to, Partitions
from robion_ros.engine.profile import Cut, WHOLE
from robion_ros.models.protocol import Model, Stepped, Tensors

NOISE, ACTIONS = 'noise', 'actions'
"""Names of the stage's own tensors beside those of the context."""


class AditGraphs:
    """The stage, at the sizes that were added."""

    def __init__(self, model: Model, stream: torch.cuda.Stream,
                 warming: torch.cuda.Stream) -> None:
        """Take streams to capture of without a cut, and to warm up in; see CaptureStreams."""
        self._model: Any = model  # Stepped, where steps are parted.
        self._stream, self._warming = stream, warming
        self.steps = model.denoising_steps if isinstance(model, Stepped) else 0
        """Denoising steps that can be parted; 0: they cannot."""
        self.entering: dict[int, Tensors] = {}
        """By size: the context and the noise."""
        self._actions: dict[int, torch.Tensor] = {}
        self._begun: dict[int, Tensors] = {}
        """By size: what steps need that is not the context itself."""
        self.graphs: dict[tuple[int, Cut], Graph] = {}
        self.rests: dict[tuple[int, int], Graph] = {}
        """By size and the steps before: what the stage does with all of the GPU."""

    def enter(self, size: int, entering: Tensors) -> None:
        """Run a size, and make its buffers; what enters it will be copied into entering."""
        self.entering[size] = entering
        self._actions[size] = warm_up(partial(run_all, self._model, entering),
                                      self._warming)[ACTIONS]

    def capture_whole(self, size: int, pool: Pool) -> None:
        """Capture a size without a cut."""
        self.graphs[size, WHOLE] = Graph(partial(run_all, self._model, self.entering[size]),
                                         {ACTIONS: self._actions[size]}, self._stream, pool)

    def capture(self, size: int, cut: Cut, partitions: Partitions, pool: Pool) -> None:
        """Capture a size on what a cut leaves to it, unless it is there; others may run."""
        if (size, cut) in self.graphs:
            return
        entering, actions = self.entering[size], {ACTIONS: self._actions[size]}
        run, outputs = partial(run_all, self._model, entering), actions
        if cut.steps:
            numbers = self._number_steps(size)
            outputs = {**actions, **self._begin(size)}
            run = partial(run_first, self._model, entering, numbers[:cut.steps])
        stream = partitions.streams(cut.cap).adit
        with held_to(partitions.sms - cut.cap, partitions.sms):
            warm_up(run, self._warming)  # Its kernels may be others than before.
            self.graphs[size, cut] = Graph(run, outputs, stream, pool)
        if cut.steps and (size, cut.steps) not in self.rests:
            rest = partial(run_rest, self._model, entering, numbers[cut.steps:])
            # On copies: what runs may be reading the buffers, and steps write to them.
            warm_up(partial(rest, {name: tensor.clone() for name, tensor in outputs.items()}),
                    self._warming)
            self.rests[size, cut.steps] = Graph(partial(rest, outputs), actions, self._stream,
                                                pool)

    def replay(self, size: int, cut: Cut) -> None:
        """Enqueue the stage on what was copied into entering."""
        self.graphs[size, cut].replay()
        if cut.steps:
            self.rests[size, cut.steps].replay()

    def run(self, context: Tensors, noise: torch.Tensor, cut: Cut) -> torch.Tensor:
        """Enqueue the stage of a batch; the actions, on the CPU, are there when the stream is."""
        size = len(noise)
        for name, tensor in {**context, NOISE: noise}.items():
            self.entering[size][name].copy_(tensor, non_blocking=True)
        self.replay(size, cut)
        return self._actions[size].to('cpu', non_blocking=True, copy=True)

    def keep(self, used: Collection[tuple[int, Cut]]) -> None:
        """Drop all graphs but those without a cut and those used."""
        kept = {(size, WHOLE) for size in self.entering} | set(used)
        for key in set(self.graphs) - kept:
            del self.graphs[key]
        for rest in set(self.rests) - {(size, cut.steps) for size, cut in kept}:
            del self.rests[rest]

    def _number_steps(self, size: int) -> Sequence[torch.Tensor]:
        """Return for each step its number, for every row of a batch."""
        numbers = torch.arange(self.steps, device=self._actions[size].device)
        return numbers[:, None].repeat(1, size).unbind(0)

    def _begin(self, size: int) -> Tensors:
        """Return where what steps need is handed from one graph to the next."""
        if size not in self._begun:
            self._begun[size] = warm_up(
                partial(begin, self._model, self.entering[size]), self._warming)
        return self._begun[size]


def run_all(model: Model, entering: Tensors) -> Tensors:
    """Run the stage from what enters it."""
    return {ACTIONS: model.adit(context_of(entering), entering[NOISE])}


def begin(model: Stepped, entering: Tensors) -> Tensors:
    """Return what every step needs that is not the context itself."""
    context = context_of(entering)
    return {name: tensor for name, tensor in model.adit_begin(context).items()
            if tensor is not context.get(name)}


def run_first(model: Stepped, entering: Tensors, steps: Sequence[torch.Tensor]) -> Tensors:
    """Run the first steps; return the actions so far, and what the others need."""
    own = begin(model, entering)
    return {**own, **run_rest(model, entering, steps, {**own, ACTIONS: entering[NOISE]})}


def run_rest(model: Stepped, entering: Tensors, steps: Sequence[torch.Tensor],
             handed: Tensors) -> Tensors:
    """Run steps from what those before them, or begin and the noise, hand over."""
    actions = handed[ACTIONS]
    for step in steps:
        actions = model.adit_step({**entering, **handed}, actions, step)
    return {ACTIONS: actions}


def context_of(entering: Tensors) -> Tensors:
    """Return what enters the stage beside the noise."""
    return {name: tensor for name, tensor in entering.items() if name != NOISE}
