# SPDX-License-Identifier: Apache-2.0
"""
Models made ready once for everything that is compared: the same weights, kernels and graphs.

Knows neither traffic nor pipelines.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from robion_ros.bench.settings import BenchError
from robion_ros.config import CameraConfig, ModelConfig, ServerConfig
from robion_ros.engine.device import Device, free_memory, freeze_memory, open_device
from robion_ros.engine.lockstep_times import Durations
from robion_ros.models.protocol import Model
from robion_ros.models.registry import load


@dataclass(frozen=True, eq=False)
class Prepared:
    """Models on a device."""

    configs: Mapping[str, ModelConfig]
    device: Device
    max_batch: int
    models: Mapping[str, Model]
    """As they were loaded."""
    ready: MutableMapping[str, Model]
    """As they run best on the device, at batches up to max_batch, with caps where there are."""
    times: Durations = field(default_factory=dict)
    """What is known of their locksteps."""


def make_configs(models: Mapping[str, str], slos: Mapping[str, float], rate: float, cameras: int,
                 joints: int, seed: int) -> Mapping[str, ModelConfig]:
    """Describe models, architectures by name; each has random weights of a seed of its own."""
    views = {f'camera_{index + 1}': CameraConfig() for index in range(cameras)}
    names = tuple(f'joint_{index + 1}' for index in range(joints))
    return {name: ModelConfig(architecture, views, names, rate, slos[name], 1,
                              seed=seed + index + 1)
            for index, (name, architecture) in enumerate(models.items())}


def prepare(configs: Mapping[str, ModelConfig], device: str, max_batch: int,
            beside: bool = True) -> Prepared:
    """
    Load models and make them ready; beside: for stages side by side, with caps.

    Raises FieldError or BenchError, before anything is loaded, where that cannot be.
    """
    ServerConfig(tuple(configs), device, max_batch)
    try:
        opened = open_device(device)
    except ValueError as error:
        raise BenchError(str(error)) from None
    free_memory()  # What was prepared before may be needed no more.
    models = {name: load(config, device) for name, config in configs.items()}
    found = opened.prepare(models, max_batch, beside)
    freeze_memory()
    return Prepared(configs, opened, max_batch, models, found.models, found.times)
