# SPDX-License-Identifier: Apache-2.0
"""Small models of two cameras and seven joints, and what their robots see."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import registry
from robion_ros.models.pi0 import Pi0
from robion_ros.models.smolvla import Smolvla

from .golden import Case, GOLDEN, lerobot_folder

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


@pytest.fixture(scope='session')
def saved(tiny, tmp_path_factory) -> Path:
    """Return a checkpoint of the tiny model, to be copied by who changes it."""
    folder = tmp_path_factory.mktemp('saved')
    tiny.save(folder)
    return folder


@pytest.fixture(scope='session')
def moved(model_config) -> Callable[[str], Any]:
    """Return a maker of small models whose weights are all away from where training starts."""
    @cache
    def make(architecture: str) -> Any:
        model = registry.load(model_config(architecture=architecture), 'cpu')
        generator = torch.Generator().manual_seed(1)
        for weight in model.network.parameters():
            size = weight[0].numel() ** 0.5
            weight += 0.2 * torch.randn(weight.shape, generator=generator) / size
        return type(model)(model.config, model.network)
    return make


@pytest.fixture(scope='session', params=['pi0_small', 'pi05_small'])
def pi0(request, moved) -> Pi0:
    return moved(request.param)


@pytest.fixture(scope='session')
def smolvla(moved) -> Smolvla:
    return moved('smolvla_small')


@pytest.fixture(scope='session')
def case_of(tmp_path_factory) -> Callable[[str], Case]:
    """Return a maker of models of the golden checkpoints; those that change one load their own."""
    @cache
    def make(kind: str) -> Case:
        if kind != 'gr00t_lerobot':
            return Case(GOLDEN[kind])
        folder = lerobot_folder(tmp_path_factory.mktemp(kind) / 'checkpoint')
        return Case(GOLDEN[kind].at(folder))
    return make


class OnlyMeta(TorchDispatchMode):
    """Raises when a tensor with values, of which a device would have to wait, appears."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor):
                assert leaf.is_meta, function
        return result


@pytest.fixture(scope='session')
def only_meta() -> type[OnlyMeta]:
    return OnlyMeta


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
