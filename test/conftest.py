# SPDX-License-Identifier: Apache-2.0
"""What tests of every part share: a fake model, ROS domains, and a swept shared memory."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
import os
import sys
from threading import Event
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from robion_ros.commands.domain import free_domain
from robion_ros.core import Observation
from robion_ros.models import registry
from robion_ros.models.protocol import ModelSpec, Tensors
from robion_ros.shared_memory import sweep

from .waiting import TIMEOUT

DOMAINS = count(os.getpid())
"""Each test has a domain of its own, so that nobody is heard who has just ended or runs beside."""


def use_domain(patch: pytest.MonkeyPatch) -> None:
    """Let nodes made from now on, here and in child processes, meet nobody else."""
    patch.setenv('ROS_DOMAIN_ID', str(free_domain(next(DOMAINS))))
    patch.setenv('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip what is marked gpu where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker('gpu'):
                item.add_marker(pytest.mark.skip(reason='needs a CUDA device'))


@pytest.fixture
def own_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nodes of this test among themselves."""
    use_domain(monkeypatch)


@pytest.fixture(autouse=True, scope='module')
def swept() -> Iterator[None]:
    """Take away what DDS processes that were killed have left in shared memory."""
    yield
    sweep()


@dataclass(frozen=True)
class FakeSizes:
    """What the time of a request to the fake model depends on."""

    states: int = 2


class Fake:
    """A model that answers with the robot's state; some prompts make it do otherwise."""

    spec = ModelSpec('fake', 2, 2, 3, 2, 0.05)
    sizes = FakeSizes()

    def __init__(self) -> None:
        self.gate = Event()
        """While it is not set, the VLM stage waits."""
        self.gate.set()
        self.prompts: list[str] = []
        """The instructions that ran, in order."""

    def preprocess(self, observation: Observation) -> Tensors:
        return {'state': torch.from_numpy(observation.state)}

    def vlm(self, inputs: Tensors) -> Tensors:
        assert self.gate.wait(TIMEOUT)
        return inputs

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        return context['state'][:, None, :] + 0 * noise

    def noise(self, seeds: Sequence[int]) -> torch.Tensor:
        return torch.zeros(len(seeds), 3, 2)

    def postprocess(self, actions: torch.Tensor, observation: Observation) -> np.ndarray:
        self.prompts.append(observation.prompt)
        match observation.prompt:
            case 'nan':
                return actions.numpy() * np.float32(np.nan)
            case 'shape':
                return np.zeros((3, 5), np.float32)
            case 'raise':
                raise RuntimeError('out of ideas')
            case 'exit':
                raise SystemExit
        return actions.numpy()


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Fake]]:
    """Make the architecture 'fake' known; returns the models loaded, by their prompts."""
    loaded: dict[str, list[Fake]] = defaultdict(list)

    def load(model: Any, config: Any, device: torch.device, progress: Any = None) -> Fake:
        loaded[model.prompt].append(Fake())
        return loaded[model.prompt][-1]
    module = ModuleType('fake_architecture')
    vars(module).update(configure=lambda model: Fake, load=load,
                        blank=lambda config, device: torch.nn.Linear(2, 2, device='meta'))
    monkeypatch.setitem(sys.modules, 'fake_architecture', module)
    monkeypatch.setitem(registry.ARCHITECTURES, 'fake', 'fake_architecture')
    return loaded
