# SPDX-License-Identifier: Apache-2.0
"""
A GPU as a device: a stage is a stream, a model runs as CUDA graphs, times are those of events.

Work is enqueued by the thread that launches and awaited through an event: between the two the
thread is free and the GPU does not wait for it. Knows neither queues nor the order of stages.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
import logging
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from robion_ros.engine.batch import batch_sizes
from robion_ros.engine.cuda_calls import has_passed, new_event, new_stream
from robion_ros.engine.cuda_prepared import CudaPrepared
from robion_ros.engine.device import Memory, Prepared, Timed
from robion_ros.engine.machine import describe_gpu
from robion_ros.engine.partition import open_partitions
from robion_ros.engine.profile import default_folder, Progress, Table
from robion_ros.engine.profiler import PRIORITIES, profile_file
from robion_ros.models.protocol import Model

logger = logging.getLogger(__name__)

T = TypeVar('T')

LAUNCHED = 6
"""Results of a stage that may be under way, or be asked how long they took: of three locksteps."""

LEAD = 0.0015
"""What it takes the host to launch two stages, and some more, s."""

Events = tuple[torch.cuda.Event, torch.cuda.Event]
"""Of a start and an end."""


class CudaPending(Generic[T]):
    """A result that is there when its event is."""

    def __init__(self, run: Callable[[], T], after: Sequence[Any],
                 stream: torch.cuda.Stream, events: Events) -> None:
        self._start, self._end = events
        self._error: BaseException | None = None
        with torch.cuda.stream(stream), torch.inference_mode():
            for other in after:
                stream.wait_event(other._end)
            self._start.record(stream)
            try:
                self._value = run()
            except BaseException as error:  # It is the result's, as on every device.
                self._error = error
            self._end.record(stream)

    def done(self) -> bool:
        """Return whether the result is there."""
        return has_passed(self._end)

    def wait(self) -> None:
        """Wait until it is, or has failed."""
        self._end.synchronize()

    def result(self) -> Timed[T]:
        """Wait for the result; raise what the function raised."""
        self._end.synchronize()
        return Timed(self.handed(), self.since(self))

    def handed(self) -> T:
        """Return the result, which only what is launched after it may look at."""
        if self._error:
            raise self._error
        return self._value

    def since(self, other: Any) -> float:
        """Return the time from the start of another to the end of this, both done, s."""
        return other._start.elapsed_time(self._end) / 1e3


class CudaStage:
    """A stage on the GPU: one stream."""

    def __init__(self, device: torch.device, priority: int) -> None:
        self._stream = new_stream(device, priority)
        self._events = cycle([(new_event(), new_event()) for _ in range(LAUNCHED)])

    def launch(self, run: Callable[[], T], after: Sequence[Any] = ()) -> CudaPending[T]:
        """
        Enqueue run after what was launched here before it and after others; return at once.

        Of the last LAUNCHED results each may be waited for, in any order.
        """
        return CudaPending(run, after, self._stream, next(self._events))

    def close(self) -> None:
        """Finish what was launched."""
        self._stream.synchronize()


class CudaDevice:
    """One GPU."""

    lead = LEAD

    def __init__(self, name: str, profiles: Path | None = None) -> None:
        if not torch.cuda.is_available():
            why = 'finds no GPU' if torch.version.cuda else (
                'finds no GPU, as it was built without CUDA: install one that was built with it')
            raise ValueError(f"device {name!r} is not available here: torch {torch.__version__} "
                             f"{why}; 'cpu' is available")
        self._device = torch.device('cuda', torch.device(name).index or 0)
        if self._device.index >= torch.cuda.device_count():
            raise ValueError(f'device {name!r} is not available here: there are '
                             f'{torch.cuda.device_count()} GPUs, the first is cuda:0')
        self.name = str(self._device)
        # What the CPU does for a stage is too small to be shared among threads.
        torch.set_num_threads(1)
        self.profile_file = profile_file(profiles or default_folder(), self._device)
        """Where what was found out about models side by side is kept."""

    @property
    def machine(self) -> Mapping[str, str]:
        """Return the kind of the GPU and what drives it."""
        return describe_gpu(self._device)

    def memory(self) -> Memory | None:
        """Return the memory of the GPU; what is free is so for all processes."""
        return Memory(*torch.cuda.mem_get_info(self._device))

    def taken(self) -> int | None:
        """Return what torch has reserved, for tensors and graphs."""
        return torch.cuda.memory_reserved(self._device)

    def stage(self, name: str) -> CudaStage:
        """Open a stage; work of different stages runs side by side."""
        return CudaStage(self._device, PRIORITIES.get(name, 0))

    def prepare(self, models: Mapping[str, Model], max_batch: int, beside: bool) -> Prepared:
        """Capture every model at every batch size; find the caps for stages side by side."""
        with torch.cuda.device(self._device):
            partitions = open_partitions(self._device.index) if beside else None
            prepared = CudaPrepared(models, batch_sizes(max_batch), self._device, partitions,
                                    self.profile_file)
            prepared.guard()
        logger.info('%s: %.2f GB of memory in use', self.name,
                    torch.cuda.memory_reserved(self._device) / 1e9)
        return prepared

    def profile(self, models: Mapping[str, Model], max_batch: int, again: bool,
                report: Progress) -> tuple[Path, Table]:
        """
        Measure models side by side under every cap; return the file with it, and the table.

        again: also what is in the file. Raise ValueError where there are no caps.
        """
        partitions = open_partitions(self._device.index)
        if partitions is None:
            raise ValueError('the multiprocessors of this GPU cannot be divided, as the warning '
                             'says: there is nothing to profile')
        with torch.cuda.device(self._device):
            prepared = CudaPrepared(models, batch_sizes(max_batch), self._device, partitions,
                                    self.profile_file)
            return self.profile_file.path, prepared.profile(again, report)
