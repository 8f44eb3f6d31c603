# SPDX-License-Identifier: Apache-2.0
"""Factories and stage times of known figures."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from robion_ros.config import CameraConfig, FactoryConfig, ManagerConfig, ModelConfig, ServerConfig
from robion_ros.engine.profile import Load, Pair
from robion_ros.simulation.stage_times import complete, StageTimes, Together

VLM, ADIT = {1: 0.008, 2: 0.014}, {1: 0.005, 2: 0.006}
PAIRS = {(1, 1): 0.010, (1, 2): 0.011, (2, 1): 0.016, (2, 2): 0.018}
MODELS = 'pick', 'place'


def make_times(models: tuple[str, ...] = MODELS, **changes: Any) -> StageTimes:
    """Return times that are the same for all models."""
    measured = StageTimes(
        {Load('tiny', size): time for size, time in VLM.items()},
        {Load('tiny', size): time for size, time in ADIT.items()},
        {Pair(Load('tiny', vlm), Load('tiny', adit)): Together(time, time)
         for (vlm, adit), time in PAIRS.items()}, **changes)
    return complete(measured, dict.fromkeys(models, 'tiny'), (1, 2))


def make_factory(servers: int = 2, robots: Mapping[str, int] | None = None, capacity: int = 20,
                 slo: float = 0.1, priorities: Mapping[str, int] | None = None,
                 **server: Any) -> FactoryConfig:
    """Return a factory whose servers take both models."""
    robots = {'pick': 4, 'place': 4} if robots is None else robots
    models = {name: ModelConfig('tiny', {'wrist': CameraConfig()}, ('x',), 2.0, slo, capacity,
                                priority=(priorities or {}).get(name, 0)) for name in MODELS}
    return FactoryConfig(
        models, {f'server_{index}': ServerConfig(MODELS, **server) for index in range(servers)},
        {name: tuple(f'{name}_{index}' for index in range(1, count + 1))
         for name, count in robots.items()}, ManagerConfig())


@pytest.fixture(scope='session')
def kit() -> SimpleNamespace:
    """Return the parts above, which test modules cannot import."""
    return SimpleNamespace(make_times=make_times, make_factory=make_factory, VLM=VLM, ADIT=ADIT,
                           PAIRS=PAIRS)
