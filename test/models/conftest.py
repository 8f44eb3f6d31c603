# SPDX-License-Identifier: Apache-2.0
"""A tiny model of two cameras and seven joints, and what its robots see."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import registry
from robion_ros.models.pi0 import Pi0
from robion_ros.models.smolvla import Smolvla

JOINTS = tuple(f'joint_{index}' for index in range(7))


@pytest.fixture(scope='session', autouse=True)
def one_thread():
    """Compute as a server does: more threads than free cores slow small tensors down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope='session')
def model_config() -> Callable[..., ModelConfig]:
    def make(**changes: object) -> ModelConfig:
        values = {'architecture': 'tiny', 'cameras': dict.fromkeys(('front', 'wrist'),
                                                                   CameraConfig()),
                  'joints': JOINTS, 'rate': 2.0, 'slo': 0.1, 'capacity': 8}
        return ModelConfig(**(values | changes))
    return make


@pytest.fixture(scope='session')
def tiny(model_config):
    return registry.load(model_config(), 'cpu')


@pytest.fixture(scope='session', params=['pi0_small', 'pi05_small'])
def pi0(request, model_config) -> Pi0:
    """Return a small model whose weights are all away from where training starts."""
    return Pi0(*moved(registry.load(model_config(architecture=request.param), 'cpu')))


@pytest.fixture(scope='session')
def smolvla(model_config) -> Smolvla:
    """Return a small model whose weights are all away from where training starts."""
    return Smolvla(*moved(registry.load(model_config(architecture='smolvla_small'), 'cpu')))


def moved(model):
    """Return the sizes of a model, and its network with other weights."""
    generator = torch.Generator().manual_seed(1)
    for weight in model.network.parameters():
        weight += 0.2 * torch.randn(weight.shape, generator=generator) / weight[0].numel() ** 0.5
    return model.config, model.network


@pytest.fixture(scope='session')
def observe() -> Callable[..., Observation]:
    def make(seed: int = 0, prompt: str = 'pick up the red cube', cameras: int = 2) -> Observation:
        rng = np.random.default_rng(seed)
        images = tuple(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8) for _ in range(cameras))
        return Observation(images, rng.normal(size=7).astype(np.float32), prompt, 0)
    return make


@pytest.fixture(scope='session')
def stack() -> Callable[..., dict[str, torch.Tensor]]:
    def make(model, *observations: Observation) -> dict[str, torch.Tensor]:
        rows = [model.preprocess(observation) for observation in observations]
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return make


@pytest.fixture(scope='session')
def answer(stack) -> Callable[..., np.ndarray]:
    def run(model, observation: Observation, seed: int = 0) -> np.ndarray:
        context = model.vlm(stack(model, observation))
        return model.postprocess(model.adit(context, model.noise([seed]))[0], observation)
    return run
