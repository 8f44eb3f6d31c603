# SPDX-License-Identifier: Apache-2.0
"""
A device on virtual time: what the engine's own pipelines launch takes as long as stored times say.

To wait for a result is to set the clock forward to its end, so that a pipeline's tick, which waits
for what was launched before, comes back with the clock where a thread's would be. Knows neither
queues nor the order of stages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from robion_ros.core import Observation
from robion_ros.engine.device import Timed
from robion_ros.engine.in_flight import Entered
from robion_ros.engine.packing import Block
from robion_ros.engine.pipelines import Guarded
from robion_ros.engine.profile import Load, Pair
from robion_ros.models.protocol import ModelSpec, Tensors
from robion_ros.simulation.stage_times import StageTimes

T = TypeVar('T')

BLOCK = Block(torch.empty(0, dtype=torch.uint8), None)
"""What a request brings to the device: nothing."""
ACTIONS = np.zeros((1, 1), np.float32)


@dataclass
class VirtualClock:
    """The time of one thread, s."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass(frozen=True, eq=False)
class VirtualPending(Generic[T]):
    """A result whose end is known."""

    value: T
    start: float
    end: float
    clock: VirtualClock

    def done(self) -> bool:
        """Return whether the result is there."""
        return self.clock.now >= self.end

    def wait(self) -> None:
        """Let time pass until it is."""
        self.clock.now = max(self.clock.now, self.end)

    def result(self) -> Timed[T]:
        """Let time pass until the result is there."""
        self.wait()
        return Timed(self.value, self.end - self.start)

    def handed(self) -> T:
        """Return the result for what is launched after it."""
        return self.value

    def since(self, other: Any) -> float:
        """Return the time from the start of another to the end of this, s."""
        return float(self.end - other.start)


@dataclass
class VirtualDevice:
    """Where stages of virtual models are launched."""

    clock: VirtualClock
    lead: float
    """See engine.device.Stages; s."""
    gap: float = 0.0
    """Between what the tick before launched and what this one does, s."""
    spent: float = 0.0
    """What the run that is being launched takes, s."""

    def stage(self, name: str) -> 'VirtualStage':
        """Open a stage."""
        return VirtualStage(self)

    def spend(self, seconds: float) -> None:
        """Let what is being launched take longer."""
        self.spent += seconds


@dataclass
class VirtualStage:
    """A stage: one run after another."""

    device: VirtualDevice
    free: float = -inf
    """When it has finished what was launched, s."""
    launched: float = -inf
    """When that was launched, s."""

    def launch(self, run: Callable[[], T], after: Sequence[Any] = ()) -> VirtualPending[T]:
        """Run now; it starts when all that it comes after has ended."""
        self.device.spent = 0.0
        value = run()
        now = self.device.clock.now
        behind = max((self.free, *(other.end for other in after)))
        # What one tick launches in a stage follows at once.
        gap = self.device.gap if self.launched < now else 0.0
        start = max(now, behind + gap)
        self.launched, self.free = now, start + self.device.spent
        return VirtualPending(value, start, self.free, self.device.clock)

    def close(self) -> None:
        """Free the stage."""


@dataclass
class VirtualModel(Guarded):
    """A model whose stages only take time; it has nothing to do with what robots see."""

    name: str
    times: StageTimes
    spend: Callable[[float], None]
    spec: ModelSpec = field(default=ModelSpec('virtual', 1, 1, 1, 1, 0.1))
    _rows: dict[int, torch.Tensor] = field(default_factory=dict)

    def vlm_beside(self, blocks: Sequence[Block], beside: Load | None) -> Entered:
        """Take the time of a VLM stage beside an ADiT stage, if there is one."""
        load = Load(self.name, len(blocks))
        self.spend(self.times.locksteps[Pair(load, beside)].vlm if beside
                   else self.times.vlm[load])
        return {}, self._rows.setdefault(load.batch, torch.zeros(load.batch, 1))

    def adit_beside(self, context: Tensors, noise: torch.Tensor,
                    beside: Load | None) -> torch.Tensor:
        """Take the time of an ADiT stage beside a VLM stage, if there is one."""
        load = Load(self.name, len(noise))
        self.spend(self.times.locksteps[Pair(beside, load)].adit if beside
                   else self.times.adit[load])
        return noise

    def pack(self, inputs: Tensors, noise: torch.Tensor) -> Block:
        """Return what brings nothing to the device."""
        return BLOCK

    def preprocess(self, observation: Observation) -> Tensors:
        """Return no inputs."""
        return {}

    def vlm(self, inputs: Tensors) -> Tensors:
        """Refuse: only packed requests are run."""
        raise NotImplementedError

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Take the time of an ADiT stage alone."""
        return self.adit_beside(context, noise, None)

    def noise(self, seeds: Sequence[int]) -> torch.Tensor:
        """Return no noise."""
        return torch.zeros(len(seeds), 1)

    def postprocess(self, actions: torch.Tensor, observation: Observation) -> np.ndarray:
        """Return a chunk that means nothing."""
        return ACTIONS
