# SPDX-License-Identifier: Apache-2.0
"""
Finds out on a GPU how long every two batches take side by side under every cap.

What was measured once on a machine is read from its file. Knows neither queues nor which batches
will meet.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
import logging
from pathlib import Path
from time import monotonic

import torch

from robion_ros import models as models_package
from robion_ros.engine import adit_graphs, graphed, graphs, partition
from robion_ros.engine.cuda_calls import new_event, new_stream
from robion_ros.engine.graphed import GraphedModel
from robion_ros.engine.machine import describe_gpu
from robion_ros.engine.partition import Partitions
from robion_ros.engine.profile import (
    code_version,
    Cut,
    Ends,
    Load,
    measure_all,
    Pair,
    ProfileFile,
    Progress,
    Table,
    Times,
)

logger = logging.getLogger(__name__)

PRIORITIES = {'vlm': 0, 'adit': -1}
"""Of the stages' streams, the lower the sooner: where kernels of both wait for a multiprocessor,
those of the ADiT stage, small and one after the other, must not queue behind the VLM's."""

LEAST = 0.5
"""The part of the SMs that a VLM stage, the larger one by far, is always given."""

CODE = (Path(models_package.__file__).parent, Path(__file__),
        *(Path(str(module.__file__)) for module in (adit_graphs, graphed, graphs, partition)))
"""What a change of which may change times: all of the models, and what runs them here."""


def profile_file(folder: Path, device: torch.device) -> ProfileFile:
    """Return the file of a GPU, its driver and the programs that run on it."""
    return ProfileFile(folder, {**describe_gpu(device), 'code': code_version(*CODE)})


def profile(models: Mapping[str, GraphedModel], sizes: Sequence[int], partitions: Partitions,
            file: ProfileFile, again: bool = False, report: Progress | None = None) -> Table:
    """
    Return the times of all pairs of batches of models, by their names.

    What the file lacks is measured and added to it, again: all of it. Graphs that this takes
    are dropped.
    """
    by_shapes = {model.shapes: model for model in models.values()}
    loads = [Load(shapes, size) for shapes in by_shapes for size in sizes]
    table = {} if again else file.read()
    missing = [pair for vlm in loads for adit in loads if (pair := Pair(vlm, adit)) not in table]
    if missing:
        start = monotonic()
        measured = measure(by_shapes, missing, partitions, report)
        file.add(measured)
        table |= measured
        logger.info('%d pairs profiled in %.1f s, kept in %s', len(missing), monotonic() - start,
                    file.path)
    return by_names(models, sizes, table)


def by_names(models: Mapping[str, GraphedModel], sizes: Sequence[int], table: Table) -> Table:
    """Return those of a table's times that are of models, by their names."""
    found = {Pair(Load(name, size), Load(other, adit)):
             table.get(Pair(Load(model.shapes, size), Load(beside.shapes, adit)))
             for name, model in models.items() for size in sizes
             for other, beside in models.items() for adit in sizes}
    return {pair: times for pair, times in found.items() if times}


def measure(by_shapes: Mapping[str, GraphedModel], pairs: Sequence[Pair], partitions: Partitions,
            report: Progress | None) -> dict[Pair, Times]:
    """Run pairs side by side under every cap."""
    stages = (new_stream(partitions.device, PRIORITIES['vlm']),
              new_stream(partitions.device, PRIORITIES['adit']))

    def run(pair: Pair, cut: Cut) -> Ends:
        (vlm, size), (adit, other) = pair.vlm, pair.adit
        graphed, beside = by_shapes[vlm], by_shapes[adit].adit_graphs
        graphed.capture(size, cut, partitions, torch.cuda.graph_pool_handle())
        beside.capture(other, cut, partitions, torch.cuda.graph_pool_handle())
        return run_beside(graphed.vlm_graphs[size, cut.cap].replay,
                          partial(beside.replay, other, cut), stages)
    measured = measure_all(pairs, (0, *reversed(tried_caps(partitions))), run,
                           lambda load: by_shapes[load.model].steps, report=report)
    for model in by_shapes.values():
        model.keep('', {})
    torch.cuda.empty_cache()
    return measured


def tried_caps(partitions: Partitions) -> Sequence[int]:
    """Return the caps that may suit a VLM stage, ascending."""
    return [cap for cap in partitions.caps if cap >= LEAST * partitions.sms]


def run_beside(vlm: Callable[[], None], adit: Callable[[], None],
               stages: tuple[torch.cuda.Stream, torch.cuda.Stream]) -> Ends:
    """Enqueue two stages side by side, as a lockstep does; return how long each took, s."""
    start, vlm_end, adit_end = new_event(), new_event(), new_event()
    torch.cuda.synchronize(stages[0].device)
    start.record(stages[0])
    stages[1].wait_event(start)
    for stage, run, end in zip(stages, (vlm, adit), (vlm_end, adit_end), strict=True):
        with torch.cuda.stream(stage):
            run()
            end.record(stage)
    torch.cuda.synchronize(stages[0].device)
    return Ends(start.elapsed_time(vlm_end) / 1e3, start.elapsed_time(adit_end) / 1e3)
