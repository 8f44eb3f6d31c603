# SPDX-License-Identifier: Apache-2.0
"""
Which architectures there are, and the one way to load a model.

An architecture is one module, imported when it is asked for, so that one whose dependencies are
missing does not keep others from loading. Knows neither devices nor queues.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from hashlib import blake2b
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from robion_ros.architectures import ARCHITECTURES
from robion_ros.config import check_choice, FieldError, ModelConfig
from robion_ros.models.checkpoint import Progress
from robion_ros.models.description import Description
from robion_ros.models.protocol import Model, ModelSpec


class Architecture(Protocol):
    """What the module of an architecture offers."""

    def configure(self, model: ModelConfig) -> Any:
        """Read the checkpoint's configuration, or make one up; see its spec and sizes."""

    def blank(self, config: Any, device: torch.device) -> nn.Module:
        """Return the network on the meta device, with the types that it has on device."""

    def load(self, model: ModelConfig, config: Any, device: torch.device,
             progress: Progress | None = None) -> Model:
        """Build the model on a device with the checkpoint's weights or random ones."""

    def inspect(self, folder: Path, tokenizer: str = '') -> Description:
        """Say what a checkpoint folder of the architecture holds, and what it lacks."""


@dataclass(frozen=True)
class Outline:
    """What is known of a model before its weights are read."""

    sizes: str
    """Architecture and digest of all that the time of a request depends on; weights do not."""
    weights: int
    """Their size on the device, bytes."""


def outline(model: ModelConfig, device: str) -> Outline:
    """Say how large a model is; raise ValueError where load would before it reads weights."""
    architecture = find(model.architecture)
    config = architecture.configure(model)
    check_sizes(config.spec, model)
    network = architecture.blank(config, torch.device(device))
    listed = '\n'.join(_sizes(config.sizes))
    return Outline(
        f'{model.architecture} {blake2b(listed.encode(), digest_size=8).hexdigest()}',
        sum(tensor.nbytes for tensor in chain(network.parameters(), network.buffers())))


def _sizes(config: Any) -> Iterator[str]:
    """Yield what is counted or named, not measured: statistics and durations change no shape."""
    for field in fields(config):
        value = getattr(config, field.name)
        if not _has_float(value):
            yield f'{field.name} {value!r}'


def _has_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and any(map(_has_float, value)))


def load(model: ModelConfig, device: str, progress: Progress | None = None) -> Model:
    """
    Load a model; raise ValueError where it is not what the factory file says.

    Without a checkpoint its weights are random and its sizes those of the factory file. progress
    is told of the weights that are read; by default the log is.
    """
    architecture = find(model.architecture)
    config = architecture.configure(model)
    check_sizes(config.spec, model)
    return architecture.load(model, config, torch.device(device), progress)


def find(name: str) -> Architecture:
    """Import the module of an architecture."""
    check_choice('architecture', name, ARCHITECTURES)
    try:
        return import_module(ARCHITECTURES[name])
    except ImportError as error:
        raise ImportError(f'architecture {name!r} cannot be imported: {error}') from error


def check_sizes(spec: ModelSpec, model: ModelConfig) -> None:
    """Raise FieldError unless the robots of the factory file fit the checkpoint."""
    for field, there, here in (('cameras', spec.cameras, len(model.cameras)),
                               ('joints', spec.state_size, len(model.joints)),
                               ('actions', spec.action_size, len(model.action_names))):
        if there != here:
            raise FieldError(field, f'checkpoint {model.checkpoint} was trained with {there}, the '
                                    f'factory file names {here}')
