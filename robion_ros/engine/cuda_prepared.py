# SPDX-License-Identifier: Apache-2.0
"""
Models prepared on one GPU: captured as graphs, with cuts for stages that run side by side.

More are captured, and others freed, in one thread while another replays what is there. Graphs of
one stage share memory, as only one of them runs at a time; models of equal shapes share the
profile and compiled code, too, and have but their weights and small buffers to themselves. Knows
neither queues nor the order of stages.
"""

from collections.abc import Mapping
import logging
from time import monotonic

import torch

from robion_ros.engine.device import Prepared
from robion_ros.engine.graphed import capture_streams, GraphedModel
from robion_ros.engine.graphs import Pool
from robion_ros.engine.lockstep_times import Durations
from robion_ros.engine.partition import Partitions
from robion_ros.engine.profile import best, Cut, Load, Pair, ProfileFile, Progress, Table, WHOLE
from robion_ros.engine.profiler import by_names, profile
from robion_ros.engine.warm_up import example
from robion_ros.models.memory import release, weight_bytes
from robion_ros.models.protocol import Model

logger = logging.getLogger(__name__)


class CudaPrepared(Prepared):
    """Graphs of models, and what they share."""

    def __init__(self, models: Mapping[str, Model], sizes: tuple[int, ...], device: torch.device,
                 partitions: Partitions | None, file: ProfileFile) -> None:
        """Capture models at sizes; partitions are for stages side by side."""
        self._sizes, self._device = sizes, device
        self._partitions, self._file = partitions, file
        self._streams = capture_streams(device)
        self._pools: dict[tuple[str, bool], Pool] = {}
        """By stage and whether under a cut."""
        self._graphed: dict[str, GraphedModel] = {}
        for name, model in models.items():
            torch.cuda.empty_cache()
            self._graphed[name] = self._capture(name, model)
        super().__init__(dict(self._graphed))

    def guard(self) -> None:
        """Find the cuts for any two batches, measuring those that the file lacks."""
        if self._partitions:
            table = self.profile()
            self.times = shortest(table)
            cuts = self._capture_cuts(self._graphed, table)
            for name, model in self._graphed.items():
                model.keep(name, cuts)
            torch.cuda.empty_cache()

    def profile(self, again: bool = False, report: Progress | None = None) -> Table:
        """Return the times of any two batches under every cut; again: measure all of them."""
        assert self._partitions
        return profile(self._graphed, self._sizes, self._partitions, self._file, again, report)

    def add(self, name: str, model: Model) -> Prepared:
        """
        Capture one more while others run, with the cuts that the file knows.

        What it does not know is not measured, as that needs the GPU for itself.
        """
        table: Table = {}
        with torch.cuda.device(self._device):
            try:
                graphed = self._capture(name, model)
                models = {**self._graphed, name: graphed}
                if self._partitions:
                    table = self._recall(name, models)
                    cuts = self._capture_cuts(models, table)
                    for other in self._graphed.values():
                        other.meet(cuts)
                    graphed.keep(name, cuts)
            except BaseException:
                for other in self._graphed.values():
                    other.part(name)
                release(model)
                raise
        self._graphed = models
        return Prepared({name: graphed}, shortest(table))

    def remove(self, name: str) -> None:
        """Free a model's graphs, weights and buffers; the memory is the GPU's again."""
        with torch.cuda.device(self._device):
            release(self._graphed.pop(name).model)
            for other in self._graphed.values():
                other.part(name)
            torch.cuda.empty_cache()

    def _capture(self, name: str, model: Model) -> GraphedModel:
        """Capture a model without cuts."""
        start, before = monotonic(), torch.cuda.memory_reserved(self._device)
        pools = {stage: self._pool(self._graphed, stage, False) for stage in ('vlm', 'adit')}
        graphed = GraphedModel(model, example(name, model), self._sizes, self._device, pools,
                               self._streams)
        taken = torch.cuda.memory_reserved(self._device) - before
        logger.info('%s: %.2f GB of weights, graphs of batch sizes %s captured in %.1f s, %.2f GB',
                    name, weight_bytes(model) / 1e9, ', '.join(map(str, self._sizes)),
                    monotonic() - start, taken / 1e9)
        return graphed

    def _pool(self, models: Mapping[str, GraphedModel], stage: str, cut: bool) -> Pool:
        """Return the memory of a stage's graphs; torch lets none come back to what all left."""
        if not any(bool(cap) == cut for model in models.values() for cap in model.caps[stage]):
            self._pools[stage, cut] = torch.cuda.graph_pool_handle()
        return self._pools[stage, cut]

    def _capture_cuts(self, models: Mapping[str, GraphedModel], table: Table) -> dict[Pair, Cut]:
        """Capture what lacks for the best cut of each two batches; return the cuts."""
        assert self._partitions
        cuts = {pair: best(times) for pair, times in table.items()}
        used = {(pair, cut) for pair, cut in cuts.items() if cut != WHOLE}
        pools = {stage: self._pool(models, stage, True) for stage in ('vlm', 'adit')}
        # The largest first, so that the others fit into its memory.
        for load, cut in sorted({(pair.vlm, Cut(cut.cap)) for pair, cut in used}, key=by_size):
            models[load.model].capture(load.batch, cut, self._partitions, pools['vlm'])
        for load, cut in sorted({(pair.adit, cut) for pair, cut in used}, key=by_size):
            models[load.model].adit_graphs.capture(load.batch, cut, self._partitions,
                                                   pools['adit'])
        return cuts

    def _recall(self, name: str, models: Mapping[str, GraphedModel]) -> Table:
        """Return what the file knows of a model's batches beside any, and say what it lacks."""
        known = by_names(models, self._sizes, self._file.read())
        table = {pair: times for pair, times in known.items()
                 if name in (pair.vlm.model, pair.adit.model)}
        lacking = (2 * len(models) - 1) * len(self._sizes) ** 2 - len(table)
        if lacking:
            logger.warning('%s: %d pairs of batches are not in the profile, they run without '
                           'cuts; `robion profile` measures them, for the next start', name,
                           lacking)
        return table


def shortest(table: Table) -> Durations:
    """Return the time of each two batches under their best cut."""
    return {pair: min(times.values()) for pair, times in table.items()}


def by_size(captured: tuple[Load, Cut]) -> tuple[int, str, Cut]:
    """Sort by batch size, the largest first."""
    load, cut = captured
    return -load.batch, load.model, cut
