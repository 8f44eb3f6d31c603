# SPDX-License-Identifier: Apache-2.0
"""
A model whose stages are CUDA graphs: one for each batch size and each cut of the GPU.

To a pipeline it is a model like any other, which also packs requests ahead of time, and whose
stages keep to their parts of the GPU. Knows neither queues nor how cuts are chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from robion_ros.engine.adit_graphs import AditGraphs, NOISE
from robion_ros.engine.batch import Ticket
from robion_ros.engine.cuda_calls import new_stream
from robion_ros.engine.graphs import Graph, Pool, warm_up
from robion_ros.engine.packing import Block, Blocks, lay_out
from robion_ros.engine.partition import held_to, Partitions
from robion_ros.engine.profile import Cut, Load, Pair, WHOLE
from robion_ros.models.protocol import Model, Tensors

BLOCKS = 128
"""Requests of a model that may wait in pinned memory."""


class CaptureStreams(NamedTuple):
    """
    Streams of which models are captured, one set for all that an engine serves.

    The library of matrix products keeps one workspace for each stream, and two products in one
    can hang. So graphs that run side by side must come from different ones, and what runs before
    a capture from a third: graphs of other models may be running. Streams are lent again and
    again, but those of another priority are others.
    """

    vlm: torch.cuda.Stream
    adit: torch.cuda.Stream
    warm_up: torch.cuda.Stream
    """Nothing is captured of it."""


def capture_streams(device: torch.device) -> CaptureStreams:
    """Return streams to capture of."""
    return CaptureStreams(new_stream(device), new_stream(device, priority=-1),
                          new_stream(device))


class GraphedModel:
    """A model in graphs, of the sizes that it was captured with."""

    def __init__(self, model: Model, ticket: Ticket, sizes: tuple[int, ...],
                 device: torch.device, pools: Mapping[str, Pool],
                 streams: CaptureStreams | None = None) -> None:
        """Capture every size, the largest first, so that the others fit into its memory."""
        self.model = model
        self.spec, self.preprocess = model.spec, model.preprocess
        self.noise, self.postprocess = model.noise, model.postprocess
        streams = streams or capture_streams(device)
        self.adit_graphs = AditGraphs(model, streams.adit, streams.warm_up)
        layout = lay_out({**ticket.inputs, NOISE: ticket.noise})
        self._blocks = Blocks(layout, BLOCKS, device.type == 'cuda')
        example = self.pack(ticket.inputs, ticket.noise)
        self._rows: dict[int, tuple[torch.Tensor, ...]] = {}
        """By size: where the blocks of a batch go, one after the other."""
        self._vlm_inputs: dict[int, dict[str, torch.Tensor]] = {}
        """The same as tensors, and the noise, which the VLM stage does not read."""
        self._vlm_runs: dict[int, Callable[[], Tensors]] = {}
        self._contexts: dict[int, Tensors] = {}
        self.vlm_graphs: dict[tuple[int, int], Graph] = {}
        """By size and cap."""
        self._name, self._cuts = '', dict[Pair, Cut]()
        sizes = tuple(sorted(sizes, reverse=True))
        for size in sizes:
            self._warm_up(size, example, streams.warm_up, device)
        # Graphs cannot take what torch keeps for other uses.
        torch.cuda.empty_cache()
        for size in sizes:
            self.vlm_graphs[size, WHOLE.cap] = Graph(self._vlm_runs[size], self._contexts[size],
                                                     streams.vlm, pools['vlm'])
            self.adit_graphs.capture_whole(size, pools['adit'])

    def _warm_up(self, size: int, example: Block, stream: torch.cuda.Stream,
                 device: torch.device) -> None:
        """Run both stages at a size, and make the buffers that its graphs read and write."""
        with torch.cuda.stream(stream):
            place = torch.empty(size, self._blocks.layout.size, dtype=torch.uint8, device=device)
            place.copy_(example.memory.expand(size, -1))
        self._rows[size] = place.unbind(0)
        self._vlm_inputs[size] = self._blocks.layout.views(place)
        self._vlm_runs[size] = partial(run_vlm, self.model, self._vlm_inputs[size])
        context = self._contexts[size] = warm_up(self._vlm_runs[size], stream)
        noise = self._vlm_inputs[size][NOISE]
        with torch.cuda.stream(stream):
            entering = {name: tensor.clone() for name, tensor in {**context, NOISE: noise}.items()}
        self.adit_graphs.enter(size, entering)

    @property
    def steps(self) -> int:
        """Denoising steps that can be parted; 0: they cannot."""
        return self.adit_graphs.steps

    @property
    def caps(self) -> Mapping[str, set[int]]:
        """The caps of the graphs that there are, by stage."""
        return {'vlm': {cap for _, cap in self.vlm_graphs},
                'adit': {cut.cap for _, cut in self.adit_graphs.graphs}}

    @property
    def shapes(self) -> str:
        """What the time of a stage depends on: models of equal shapes take equally long."""
        size = min(self._contexts)
        tensors = {**self._vlm_inputs[size], **self.adit_graphs.entering[size]}
        listed = ', '.join(f'{name} {tensor.dtype} {list(tensor.shape)}'
                           for name, tensor in sorted(tensors.items()))
        return f'{self.spec.architecture}: {listed}'.replace('torch.', '')

    def capture(self, size: int, cut: Cut, partitions: Partitions, pool: Pool) -> None:
        """Capture the VLM stage of a size on its part of a cut, unless it is there."""
        if (size, cut.cap) in self.vlm_graphs:
            return
        with held_to(cut.cap, partitions.sms):
            self.vlm_graphs[size, cut.cap] = Graph(self._vlm_runs[size], self._contexts[size],
                                                   partitions.streams(cut.cap).vlm, pool)

    def keep(self, name: str, cuts: Mapping[Pair, Cut]) -> None:
        """Take the cuts to run under, as the model of a name; drop all other graphs."""
        self._name, self._cuts = name, dict(cuts)
        used = {(pair.vlm.batch, cut.cap) for pair, cut in cuts.items() if pair.vlm.model == name}
        for key in set(self.vlm_graphs) - used - {(size, WHOLE.cap) for size in self._rows}:
            del self.vlm_graphs[key]
        self.adit_graphs.keep({(pair.adit.batch, cut) for pair, cut in cuts.items()
                               if pair.adit.model == name})

    @property
    def cuts(self) -> Mapping[Pair, Cut]:
        """The cuts to run under, by the two batches that meet, of which one is this model's."""
        return self._cuts

    def meet(self, cuts: Mapping[Pair, Cut]) -> None:
        """Take cuts for batches that could not be met before, while others run under theirs."""
        self._cuts = {**self._cuts, **cuts}

    def part(self, other: str) -> None:
        """Forget the cuts for batches of a model that is gone, and drop what only they used."""
        self.keep(self._name, {pair: cut for pair, cut in self._cuts.items()
                               if other not in (pair.vlm.model, pair.adit.model)})

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
        self.vlm_graphs[size, self.cut(size, beside).cap].replay()
        # The next VLM stage writes to the same places while the ADiT stage reads from these.
        context = {name: tensor.clone() for name, tensor in self._contexts[size].items()}
        return context, self._vlm_inputs[size][NOISE].clone()

    def adit_beside(self, context: Tensors, noise: torch.Tensor,
                    beside: Load | None) -> torch.Tensor:
        """Enqueue the ADiT stage on what a VLM stage beside leaves, if there is one."""
        cut = WHOLE if beside is None else self._cuts.get(
            Pair(beside, Load(self._name, len(noise))), WHOLE)
        return self.adit_graphs.run(context, noise, cut)

    def cut(self, size: int, beside: Load | None) -> Cut:
        """Return the cut of the VLM stage of a size and an ADiT stage, if there is one."""
        return WHOLE if beside is None else self._cuts.get(
            Pair(Load(self._name, size), beside), WHOLE)

    def vlm(self, inputs: Tensors) -> Tensors:
        """Enqueue the VLM stage on the current stream, with all of the GPU."""
        size = len(next(iter(inputs.values())))
        for name, tensor in inputs.items():
            self._vlm_inputs[size][name].copy_(tensor)
        self.vlm_graphs[size, WHOLE.cap].replay()
        return {name: tensor.clone() for name, tensor in self._contexts[size].items()}

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Enqueue the ADiT stage; the actions, on the CPU, are there when the stream is."""
        return self.adit_beside(context, noise, None)


def run_vlm(model: Model, entering: Tensors) -> Tensors:
    """Run the VLM stage on the rows of a batch, which stand apart in memory."""
    return model.vlm({name: tensor.contiguous() for name, tensor in entering.items()
                      if name != NOISE})
