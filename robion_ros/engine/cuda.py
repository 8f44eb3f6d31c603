# SPDX-License-Identifier: Apache-2.0
"""
A GPU as a device: a stage is a stream, a model runs as CUDA graphs, times are those of events.

Work is enqueued by the thread that launches and awaited through an event: between the two the
thread is free and the GPU does not wait for it. Knows neither queues nor the order of stages.
"""

from collections.abc import Callable, Mapping
import logging
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

import torch

from robion_ros import models as models_package
from robion_ros.engine.cuda_calls import new_event, new_stream
from robion_ros.engine.device import Timed
from robion_ros.engine.graphed import GraphedModel, WHOLE
from robion_ros.engine.partition import open_partitions, Partitions
from robion_ros.engine.profile import (
    best,
    code_version,
    default_folder,
    Load,
    measure_all,
    Pair,
    ProfileFile,
    Times,
)
from robion_ros.engine.warm_up import batch_sizes, example
from robion_ros.models.protocol import Model

logger = logging.getLogger(__name__)

T = TypeVar('T')

PRIORITIES = {'vlm': 0, 'adit': -1}
"""Of the stages' streams, the lower the sooner: where kernels of both wait for a multiprocessor,
those of the ADiT stage, small and one after the other, must not queue behind the VLM's."""


class CudaPending(Generic[T]):
    """A result that is there when its event is."""

    def __init__(self, run: Callable[[], T], stream: torch.cuda.Stream) -> None:
        self._start, self._end = new_event(), new_event()
        self._error: Exception | None = None
        with torch.cuda.stream(stream), torch.inference_mode():
            self._start.record(stream)
            try:
                self._value = run()
            except Exception as error:  # It is the result's, as on every device.
                self._error = error
            self._end.record(stream)

    def result(self) -> Timed[T]:
        """Wait for the result; raise what the function raised."""
        self._end.synchronize()
        if self._error:
            raise self._error
        return Timed(self._value, self._start.elapsed_time(self._end) / 1e3)


class CudaStage:
    """A stage on the GPU: one stream."""

    def __init__(self, device: torch.device, priority: int) -> None:
        self._stream = new_stream(device, priority)

    def launch(self, run: Callable[[], T]) -> CudaPending[T]:
        """Enqueue run after what was launched before it, and return at once."""
        return CudaPending(run, self._stream)

    def close(self) -> None:
        """Finish what was launched."""
        self._stream.synchronize()


class CudaDevice:
    """One GPU."""

    def __init__(self, name: str, profiles: Path | None = None) -> None:
        if not torch.cuda.is_available():
            raise ValueError(f"device {name!r} is not available here: torch {torch.__version__} "
                             "finds no GPU; 'cpu' is")
        self._device = torch.device('cuda', torch.device(name).index or 0)
        if self._device.index >= torch.cuda.device_count():
            raise ValueError(f'device {name!r} is not available here: there are '
                             f'{torch.cuda.device_count()} GPUs, the first is cuda:0')
        self.name = str(self._device)
        # What the CPU does for a stage is too small to be shared among threads.
        torch.set_num_threads(1)
        self._profiles = profiles or default_folder()

    def stage(self, name: str) -> CudaStage:
        """Open a stage; work of different stages runs side by side."""
        return CudaStage(self._device, PRIORITIES.get(name, 0))

    def prepare(self, models: Mapping[str, Model], max_batch: int,
                beside: bool) -> Mapping[str, Model]:
        """Capture every model at every batch size; find the caps for stages side by side."""
        sizes = batch_sizes(max_batch)
        pools = {stage: torch.cuda.graph_pool_handle() for stage in ('vlm', 'adit')}
        graphed = {}
        with torch.cuda.device(self._device):
            for name, model in models.items():
                torch.cuda.empty_cache()
                start, before = monotonic(), torch.cuda.memory_reserved(self._device)
                graphed[name] = GraphedModel(model, example(name, model), sizes, self._device,
                                             pools)
                torch.cuda.empty_cache()
                taken = torch.cuda.memory_reserved(self._device) - before
                logger.info('%s: graphs of batch sizes %s captured in %.1f s, %.2f GB', name,
                            ', '.join(map(str, sizes)), monotonic() - start, taken / 1e9)
            partitions = open_partitions(self._device.index) if beside else None
            if partitions:
                self._guard(graphed, sizes, partitions)
        logger.info('%s: %.2f GB of memory in use', self.name,
                    torch.cuda.memory_reserved(self._device) / 1e9)
        return graphed

    def _guard(self, graphed: Mapping[str, GraphedModel], sizes: tuple[int, ...],
               partitions: Partitions) -> None:
        """Give each VLM graph the cap that is best beside each ADiT graph."""
        file = ProfileFile(self._profiles, self._machine())
        by_shapes = {model.shapes: model for model in graphed.values()}
        loads = [Load(shapes, size) for shapes in by_shapes for size in sizes]
        table = file.read()
        missing = [pair for vlm in loads for adit in loads
                   if (pair := Pair(vlm, adit)) not in table]
        if missing:
            start = monotonic()
            measured = self._measure(by_shapes, missing, partitions)
            file.add(measured)
            table |= measured
            logger.info('%d pairs profiled in %.1f s, kept in %s', len(missing),
                        monotonic() - start, file.path)
        pools = {cap: torch.cuda.graph_pool_handle() for cap in partitions.caps}
        for model in graphed.values():
            caps = {(size, name, adit): best(table[Pair(Load(model.shapes, size),
                                                        Load(other.shapes, adit))])
                    for size in sizes for name, other in graphed.items() for adit in sizes}
            for size, cap in sorted({(size, cap) for (size, _, _), cap in caps.items()
                                     if cap != WHOLE}, reverse=True):
                model.capture(size, cap, partitions, pools[cap])
            model.keep(caps)
        torch.cuda.empty_cache()

    def _measure(self, by_shapes: Mapping[str, GraphedModel], pairs: list[Pair],
                 partitions: Partitions) -> dict[Pair, Times]:
        """Run pairs side by side under every cap; the graphs for it are dropped afterwards."""
        stages = (new_stream(self._device, PRIORITIES['vlm']),
                  new_stream(self._device, PRIORITIES['adit']))
        for load in {pair.vlm for pair in pairs}:
            for cap in partitions.caps:
                by_shapes[load.model].capture(load.batch, cap, partitions,
                                              torch.cuda.graph_pool_handle())

        def run(pair: Pair, cap: int) -> float:
            vlm = by_shapes[pair.vlm.model].vlm_graphs[pair.vlm.batch, cap]
            adit = by_shapes[pair.adit.model].adit_graphs[pair.adit.batch]
            return run_beside(vlm.replay, adit.replay, stages)
        measured = measure_all(pairs, (WHOLE, *reversed(partitions.caps)), run)
        for model in by_shapes.values():
            model.keep({})
        torch.cuda.empty_cache()
        return measured

    def _machine(self) -> dict[str, str]:
        """Return what a profile depends on beside shapes."""
        driver = Path('/proc/driver/nvidia/version')
        here = Path(__file__).parent
        return {'gpu': torch.cuda.get_device_name(self._device),
                'driver': driver.read_text().splitlines()[0] if driver.exists() else 'unknown',
                'torch': str(torch.__version__), 'cuda': str(torch.version.cuda),
                'code': code_version(here, Path(models_package.__file__).parent)}


def run_beside(vlm: Callable[[], None], adit: Callable[[], None],
               stages: tuple[torch.cuda.Stream, torch.cuda.Stream]) -> float:
    """Enqueue two stages side by side, as a lockstep does; return how long both took, s."""
    start, vlm_end, adit_end = new_event(), new_event(), new_event()
    torch.cuda.synchronize(stages[0].device)
    start.record(stages[0])
    stages[1].wait_event(start)
    for stage, run, end in zip(stages, (vlm, adit), (vlm_end, adit_end), strict=True):
        with torch.cuda.stream(stage):
            run()
            end.record(stage)
    torch.cuda.synchronize(stages[0].device)
    return max(start.elapsed_time(vlm_end), start.elapsed_time(adit_end)) / 1e3
