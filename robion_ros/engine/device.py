# SPDX-License-Identifier: Apache-2.0
"""
Where stages run. A device gives stages; a stage runs one function after another, beside others.

The lockstep is written against these two and does not know which device it drives; a device
knows models by their two stages alone.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
import gc
from pathlib import Path
import re
from time import perf_counter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from robion_ros.engine.lockstep_times import Durations
from robion_ros.engine.machine import describe_cpu
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

    def wait(self) -> None:
        """Wait until it is, or has failed."""

    def result(self) -> Timed[T]:
        """Wait for the result; raise what the function raised."""

    def handed(self) -> T:
        """
        Return the result for what is launched after it; raise what the function raised.

        A GPU need not be waited for: only it may look at the result before it is there.
        """

    def since(self, other: Any) -> float:
        """Return the time from the start of another to the end of this, both done, s."""


class Stage(Protocol):
    """A stream of work in order."""

    def launch(self, run: Callable[[], T], after: Sequence[Any] = ()) -> Pending[T]:
        """Start run after what was launched here before it and after others; return at once."""

    def close(self) -> None:
        """Finish what was launched and free the stage."""


@dataclass
class Prepared:
    """
    Models as they run best on a device, and what is known of their locksteps there.

    More may come and go while they run. models are those that an engine serves: it is the
    engine that adds to them and removes from them, between two locksteps.
    """

    models: dict[str, Model]
    times: Durations = field(default_factory=dict)

    def add(self, name: str, model: Model) -> 'Prepared':
        """
        Prepare one more; return it alone, with the times of its locksteps.

        Changes nothing where it cannot be, and raises what the model or the device raises.
        """
        return Prepared({name: model})

    def remove(self, name: str) -> None:
        """Free what was prepared of a model that no engine serves any more."""


class Memory(NamedTuple):
    """Of a device, bytes."""

    free: int
    total: int


class Stages(Protocol):
    """Where stages are opened."""

    lead: float
    """How long before the end of what runs its successors should be launched, s; 0: after it."""

    def stage(self, name: str) -> Stage:
        """Open a stage; work of different stages runs side by side."""


class Device(Stages, Protocol):
    """The processor of an engine."""

    name: str

    @property
    def machine(self) -> Mapping[str, str]:
        """Return its kind and what drives it: what is measured here holds for others of them."""

    def memory(self) -> Memory | None:
        """Return the memory of the device; None where it cannot be told."""

    def taken(self) -> int | None:
        """Return the memory that this process' tensors and graphs take; None: not counted."""

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


class CpuPending(Generic[T]):
    """What a thread will return."""

    def __init__(self, future: Future[tuple[T, float, float]]) -> None:
        self._future = future
        """The value, and when it was begun and there, s of perf_counter()."""

    def done(self) -> bool:
        """Return whether the result is there."""
        return self._future.done()

    def wait(self) -> None:
        """Wait until it is, or has failed."""
        wait([self._future])

    def result(self) -> Timed[T]:
        """Wait for the result; raise what the function raised."""
        value, start, end = self._future.result()
        return Timed(value, end - start)

    def handed(self) -> T:
        """Wait for the result, as nothing can be made of it before."""
        return self._future.result()[0]

    def since(self, other: Any) -> float:
        """Return the time from the start of another to the end of this, both done, s."""
        return self._future.result()[2] - other._future.result()[1]


class CpuStage:
    """A stage on the CPU: one thread, and one core."""

    def __init__(self, name: str) -> None:
        # One thread per stage: the small models meant for the CPU gain nothing from more, and
        # several servers share the machine. The setting is the calling thread's, and that of
        # threads that come to torch later.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name,
                                          initializer=torch.set_num_threads, initargs=(1,))

    def launch(self, run: Callable[[], T], after: Sequence[Any] = ()) -> CpuPending[T]:
        """Start run after what was launched here before it and after others; return at once."""
        def timed() -> tuple[T, float, float]:
            for other in after:
                other.wait()
            start = perf_counter()
            with torch.inference_mode():
                value = run()
            return value, start, perf_counter()
        return CpuPending(self._thread.submit(timed))

    def close(self) -> None:
        """Finish what was launched and end the thread."""
        self._thread.shutdown()


class CpuDevice:
    """The CPU as a device: a thread per stage."""

    name = 'cpu'
    lead = 0.0

    @property
    def machine(self) -> Mapping[str, str]:
        """Return the kind of the processor and what drives it."""
        return describe_cpu()

    def memory(self) -> Memory | None:
        """Return the memory of the machine."""
        try:
            text = Path('/proc/meminfo').read_text()
        except OSError:
            return None
        found = [re.search(rf'^{name}: *(\d+) kB', text, re.M)
                 for name in ('MemAvailable', 'MemTotal')]
        return Memory(*(int(one[1]) * 1024 for one in found if one)) if all(found) else None

    def taken(self) -> int | None:
        """Return None."""
        return None

    def stage(self, name: str) -> CpuStage:
        """Open a stage."""
        return CpuStage(name)

    def prepare(self, models: Mapping[str, Model], max_batch: int, beside: bool) -> Prepared:
        """Return models as they are, and no times."""
        return Prepared(dict(models))

    def profile(self, models: Mapping[str, Model], max_batch: int, again: bool,
                report: Progress) -> tuple[Path, Table]:
        """Raise ValueError."""
        raise ValueError('a CPU is not divided between the stages: there is nothing to profile')


def freeze_memory() -> None:
    """
    Leave what there is now out of collections of garbage, until free_memory.

    A full one looks at every object, half a million with torch and compiled layers, and stops
    every thread meanwhile: a quarter of a second without a lockstep. That is why none is made
    here: what is garbage by now is kept.
    """
    gc.freeze()
    gc.collect()  # Of nothing: full ones come when there is a quarter more than after the last.


def free_memory() -> None:
    """Give back the memory of models and engines that nobody uses any more, also to the GPU."""
    gc.unfreeze()
    gc.collect()  # They hold each other in circles, which may not be looked for in hours.
    torch.cuda.empty_cache()  # Nothing where no GPU is in use.


def open_device(name: str) -> Device:
    """Return the device called name; raise ValueError where there is none."""
    if name == 'cpu':
        return CpuDevice()
    if name.partition(':')[0] == 'cuda':
        from robion_ros.engine.cuda import CudaDevice  # It imports this module.
        return CudaDevice(name)
    raise ValueError(f"device {name!r} is not available here; 'cpu' is available")
