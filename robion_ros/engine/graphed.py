# SPDX-License-Identifier: Apache-2.0
"""
A model whose stages are CUDA graphs: one for each batch size, and of the VLM for each cap.

To a pipeline it is a model like any other, which also packs requests ahead of time, and tells the
VLM stage that leaves room for what runs beside it. Knows neither queues nor how caps are chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from robion_ros.engine.batch import Ticket
from robion_ros.engine.cuda_calls import new_stream
from robion_ros.engine.graphs import Graph, Pool, warm_up
from robion_ros.engine.packing import Block, Blocks, lay_out
from robion_ros.engine.partition import held_to, Partitions
from robion_ros.engine.profile import Load, Pair
from robion_ros.models.protocol import Model, Tensors

WHOLE = 0
"""The cap that is none."""

NOISE, ACTIONS = 'noise', 'actions'
"""Names of the ADiT stage's own tensors beside those of the context."""

BLOCKS = 128
"""Requests of a model that may wait in pinned memory."""


class GraphedModel:
    """A model in graphs, of the sizes that it was captured with."""

    def __init__(self, model: Model, ticket: Ticket, sizes: tuple[int, ...],
                 device: torch.device, pools: Mapping[str, Pool]) -> None:
        """Capture every size, the largest first, so that the others fit into its memory."""
        self.spec, self.preprocess = model.spec, model.preprocess
        self.noise, self.postprocess = model.noise, model.postprocess
        # Graphs that run side by side must come from different streams: the library of matrix
        # products keeps one workspace for each, and two products in one can hang. Streams are
        # lent again and again, but those of another priority are others.
        self._stream, adit_stream = new_stream(device), new_stream(device, priority=-1)
        layout = lay_out({**ticket.inputs, NOISE: ticket.noise})
        self._blocks = Blocks(layout, BLOCKS, device.type == 'cuda')
        example = self.pack(ticket.inputs, ticket.noise)
        self._rows: dict[int, tuple[torch.Tensor, ...]] = {}
        """By size: where the blocks of a batch go, one after the other."""
        self._vlm_inputs: dict[int, dict[str, torch.Tensor]] = {}
        """The same as tensors, and the noise, which the VLM stage does not read."""
        self._vlm_runs: dict[int, Callable[[], Tensors]] = {}
        self._contexts: dict[int, Tensors] = {}
        self._adit_inputs: dict[int, Tensors] = {}
        self._actions: dict[int, torch.Tensor] = {}
        self.vlm_graphs: dict[tuple[int, int], Graph] = {}
        """By size and cap."""
        self.adit_graphs: dict[tuple[int, int], Graph] = {}
        """By size and the cap of the VLM stage beside, which leaves the others to it."""
        self._adit_runs: dict[int, Callable[[], Tensors]] = {}
        self._name, self._caps = '', dict[Pair, int]()
        for size in sorted(sizes, reverse=True):
            place = torch.empty(size, layout.size, dtype=torch.uint8, device=device)
            place.copy_(example.memory.expand(size, -1))
            self._rows[size] = place.unbind(0)
            self._vlm_inputs[size] = layout.views(place)
            self._vlm_runs[size] = partial(run_vlm, model, self._vlm_inputs[size])
            context = warm_up(self._vlm_runs[size], self._stream)
            self._contexts[size] = context
            self.vlm_graphs[size, WHOLE] = Graph(self._vlm_runs[size], context, self._stream,
                                                 pools['vlm'])
            noise = self._vlm_inputs[size][NOISE]
            entering = {name: tensor.clone() for name, tensor in {**context, NOISE: noise}.items()}
            self._adit_inputs[size] = entering
            self._adit_runs[size] = partial(run_adit, model, entering)
            actions = warm_up(self._adit_runs[size], adit_stream)
            self._actions[size] = actions[ACTIONS]
            self.adit_graphs[size, WHOLE] = Graph(self._adit_runs[size], actions, adit_stream,
                                                  pools['adit'])

    @property
    def shapes(self) -> str:
        """What the time of a stage depends on: models of equal shapes take equally long."""
        size = min(self._contexts)
        tensors = {**self._vlm_inputs[size], **self._adit_inputs[size]}
        listed = ', '.join(f'{name} {tensor.dtype} {list(tensor.shape)}'
                           for name, tensor in sorted(tensors.items()))
        return f'{self.spec.architecture}: {listed}'.replace('torch.', '')

    def capture_vlm(self, size: int, cap: int, partitions: Partitions, pool: Pool) -> None:
        """Capture the VLM stage of a size under a cap."""
        stream = partitions.streams(cap).vlm
        with held_to(cap, partitions.sms):
            self.vlm_graphs[size, cap] = Graph(self._vlm_runs[size], self._contexts[size], stream,
                                               pool)

    def capture_adit(self, size: int, cap: int, partitions: Partitions, pool: Pool) -> None:
        """Capture the ADiT stage of a size on what a VLM stage under a cap leaves."""
        stream = partitions.streams(cap).adit
        with held_to(partitions.sms - cap, partitions.sms):
            warm_up(self._adit_runs[size], stream)  # Its kernels may be others than before.
            self.adit_graphs[size, cap] = Graph(self._adit_runs[size],
                                                {ACTIONS: self._actions[size]}, stream, pool)

    def keep(self, name: str, caps: Mapping[Pair, int]) -> None:
        """Take the caps to run under, as the model of a name; drop all other graphs."""
        self._name, self._caps = name, dict(caps)
        whole = {(size, WHOLE) for size in self._rows}
        vlm = {(pair.vlm.batch, cap) for pair, cap in caps.items() if pair.vlm.model == name}
        adit = {(pair.adit.batch, cap) for pair, cap in caps.items() if pair.adit.model == name}
        for graphs, kept in ((self.vlm_graphs, vlm | whole), (self.adit_graphs, adit | whole)):
            for key in set(graphs) - kept:
                del graphs[key]

    def pack(self, inputs: Tensors, noise: torch.Tensor) -> Block:
        """Copy what a request brings to where one copy takes it from; in any thread."""
        return self._blocks.pack({**inputs, NOISE: noise})

    def vlm_beside(self, blocks: Sequence[Block],
                   beside: Load | None) -> tuple[Tensors, torch.Tensor]:
        """
        Enqueue the VLM stage of a batch as it is best beside an ADiT stage, if there is one.

        Returns context and noise. The blocks must be held until the stage has ended.
        """
        size = len(blocks)
        for row, block in zip(self._rows[size], blocks, strict=True):
            row.copy_(block.memory, non_blocking=True)
        self.vlm_graphs[size, self.cap(size, beside)].replay()
        # The next VLM stage writes to the same places while the ADiT stage reads from these.
        context = {name: tensor.clone() for name, tensor in self._contexts[size].items()}
        return context, self._vlm_inputs[size][NOISE].clone()

    def adit_beside(self, context: Tensors, noise: torch.Tensor,
                    beside: Load | None) -> torch.Tensor:
        """Enqueue the ADiT stage on the SMs that a VLM stage beside leaves, if there is one."""
        size = len(noise)
        for name, tensor in {**context, NOISE: noise}.items():
            self._adit_inputs[size][name].copy_(tensor, non_blocking=True)
        cap = WHOLE if beside is None else self._caps.get(
            Pair(beside, Load(self._name, size)), WHOLE)
        self.adit_graphs[size, cap].replay()
        return self._actions[size].to('cpu', non_blocking=True, copy=True)

    def cap(self, size: int, beside: Load | None) -> int:
        """Return the cap of the VLM stage of a size beside an ADiT stage, if there is one."""
        return WHOLE if beside is None else self._caps.get(
            Pair(Load(self._name, size), beside), WHOLE)

    def vlm(self, inputs: Tensors) -> Tensors:
        """Enqueue the VLM stage on the current stream, with all of the GPU."""
        size = len(next(iter(inputs.values())))
        for name, tensor in inputs.items():
            self._vlm_inputs[size][name].copy_(tensor)
        self.vlm_graphs[size, WHOLE].replay()
        return {name: tensor.clone() for name, tensor in self._contexts[size].items()}

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Enqueue the ADiT stage; the actions, on the CPU, are there when the stream is."""
        return self.adit_beside(context, noise, None)


def run_vlm(model: Model, entering: Tensors) -> Tensors:
    """Run the VLM stage on the rows of a batch, which stand apart in memory."""
    return model.vlm({name: tensor.contiguous() for name, tensor in entering.items()
                      if name != NOISE})


def run_adit(model: Model, entering: Tensors) -> Tensors:
    """Run the ADiT stage as a function of named tensors."""
    context = {name: tensor for name, tensor in entering.items() if name != NOISE}
    return {ACTIONS: model.adit(context, entering[NOISE])}
