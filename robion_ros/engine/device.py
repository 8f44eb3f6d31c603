# SPDX-License-Identifier: Apache-2.0
"""
Where stages run. A device gives stages; a stage runs one function after another, beside others.

The lockstep is written against these two and does not know which device it drives; a device
knows models by their two stages alone.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch

from robion_ros.engine.lockstep_times import Durations
from robion_ros.engine.profile import Progress, Table
from robion_ros.models.protocol import Model

T = TypeVar('T')


class Timed(NamedTuple, Generic[T]):
    """A result and how long the stage took for it, s."""

    value: T
    seconds: float


class Pending(Protocol[T]):
    """A result that is under way."""

    def done(self) -> bool:
        """Return whether the result is there."""

    def result(self) -> Timed[T]:
        """Wait for the result; raise what the function raised."""


class Stage(Protocol):
    """A stream of work in order."""

    def launch(self, run: Callable[[], T]) -> Pending[T]:
        """Start run after what was launched before it, and return at once."""

    def close(self) -> None:
        """Finish what was launched and free the stage."""


@dataclass(frozen=True)
class Prepared:
    """Models as they run best on a device, and what is known of their locksteps there."""

    models: Mapping[str, Model]
    times: Durations = field(default_factory=dict)


class Device(Protocol):
    """The processor of an engine."""

    name: str

    def stage(self, name: str) -> Stage:
        """Open a stage; work of different stages runs side by side."""

    def prepare(self, models: Mapping[str, Model], max_batch: int, beside: bool) -> Prepared:
        """
        Return models as they run best here, at batch sizes up to max_batch.

        beside says whether their stages are to run side by side.
        """

    def profile(self, models: Mapping[str, Model], max_batch: int, again: bool,
                report: Progress) -> tuple[Path, Table]:
        """
        Find out what prepare needs to know of models side by side, and keep it in a file.

        again: also what is in the file. Raise ValueError where there is nothing to find out.
        """


class CpuStage:
    """A stage on the CPU: one thread, and one core."""

    def __init__(self, name: str) -> None:
        # One thread per stage: the small models meant for the CPU gain nothing from more, and
        # several servers share the machine. The setting is the calling thread's, and that of
        # threads that come to torch later.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name,
                                          initializer=torch.set_num_threads, initargs=(1,))

    def launch(self, run: Callable[[], T]) -> Future[Timed[T]]:
        """Start run after what was launched before it, and return at once."""
        def timed() -> Timed[T]:
            start = perf_counter()
            with torch.inference_mode():
                value = run()
            return Timed(value, perf_counter() - start)
        return self._thread.submit(timed)

    def close(self) -> None:
        """Finish what was launched and end the thread."""
        self._thread.shutdown()


class CpuDevice:
    """The CPU as a device: a thread per stage."""

    name = 'cpu'

    def stage(self, name: str) -> CpuStage:
        """Open a stage."""
        return CpuStage(name)

    def prepare(self, models: Mapping[str, Model], max_batch: int, beside: bool) -> Prepared:
        """Return models as they are, and no times."""
        return Prepared(models)

    def profile(self, models: Mapping[str, Model], max_batch: int, again: bool,
                report: Progress) -> tuple[Path, Table]:
        """Raise ValueError."""
        raise ValueError('a CPU is not divided between the stages: there is nothing to profile')


def open_device(name: str) -> Device:
    """Return the device called name; raise ValueError where there is none."""
    if name == 'cpu':
        return CpuDevice()
    if name.partition(':')[0] == 'cuda':
        from robion_ros.engine.cuda import CudaDevice  # It imports this module.
        return CudaDevice(name)
    raise ValueError(f"device {name!r} is not available here; 'cpu' is")
