# SPDX-License-Identifier: Apache-2.0
"""
A family of models: what each has of its own, and how any is built, from a folder or at random.

Knows no architecture.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn, Tensor

from robion_ros.config import FieldError, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import checkpoint, layers
from robion_ros.models.adapter import describe_adapter
from robion_ros.models.compiled import compile_layers
from robion_ros.models.description import Description, misfits
from robion_ros.models.folder import CheckpointError
from robion_ros.models.hub import locate
from robion_ros.models.key_table import KeyTable
from robion_ros.models.layouts import check_architecture, detect
from robion_ros.models.protocol import Model, ModelSpec, Tensors
from robion_ros.models.tokenizer import Tokenizer
from robion_ros.models.tokenizer_files import find_tokenizer


class Processing(Protocol):
    """Everything between a robot's units and those of a network."""

    @property
    def config(self) -> Any:
        """Sizes of the architecture."""

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""


class Folder(Protocol):
    """What a checkpoint folder says of a policy, before a robot is known."""

    @property
    def config(self) -> Any:
        """Sizes of the architecture."""

    @property
    def step_duration(self) -> float | None:
        """Between two steps of a chunk, s; None: the folder does not say it."""

    def tokenizer(self, configured: str) -> Tokenizer:
        """Open the tokenizer."""

    def describe(self, tokenizer: str | None, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; tokenizer is its file, problems are those of the rest."""

    def serve(self, model: ModelConfig, step_duration: float) -> Processing:
        """Return the processing for the robots of a factory file."""


@dataclass(frozen=True)
class Source:
    """What a model is made of beside its weights."""

    processing: Processing
    folder: Path | None = None
    """Of the weights; None: they are random."""

    @property
    def sizes(self) -> Any:
        """What the time of a request depends on, and more."""
        return self.processing.config

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        spec: ModelSpec = self.sizes.spec
        return spec


@dataclass(frozen=True)
class Family:
    """What the models of a family are made of; does what registry.Architecture says."""

    configs: Mapping[str, Any]
    """Sizes by the name of the architecture in a factory file."""
    keys: Mapping[str, KeyTable]
    """By architecture: of those that there are checkpoints of."""
    network: Callable[[Any], Any]
    """Makes a network of some sizes, as checkpoints hold it."""
    compiled: Sequence[type[Any]]
    """Layers that run compiled on a GPU."""
    model: Callable[[Any, Any, Any], Model]
    """Makes the model of sizes, network and processing."""
    read_folder: Callable[[Path], Folder]
    made_up: Callable[[ModelConfig, Any], Processing]
    """Makes the processing of random weights of some sizes, for the robots of a model."""
    shape: Callable[[Any, Any], object] = lambda network, config: None
    """Keeps, of a network as checkpoints hold it, what is served."""

    def configure(self, model: ModelConfig) -> Source:
        """Read what the checkpoint says, or make sizes up for the robots of a model."""
        if not model.checkpoint:
            return Source(self.made_up(model, self.configs[model.architecture]))
        if model.architecture not in self.keys:
            raise FieldError('checkpoint', f'{model.architecture} is served with random weights '
                                           'alone; leave it out')
        folder = locate(model.checkpoint)
        check_architecture(detect(folder), model.architecture, folder)
        found = self.read_folder(folder)
        duration = model.step_duration or found.step_duration
        if not duration:
            raise FieldError(
                'step_duration', f'checkpoint {folder} does not say how long one step of a chunk '
                'lasts: write 1 / the frames per second of the recordings that it was trained on')
        return Source(found.serve(model, duration), folder)

    def blank(self, source: Source, device: torch.device) -> nn.Module:
        """Return the network on the meta device, with the types that it has on device."""
        network = self._unshaped(source.sizes, device)
        self.shape(network, source.sizes)
        return network

    def load(self, model: ModelConfig, source: Source, device: torch.device,
             progress: checkpoint.Progress | None = None) -> Model:
        """Build the model on a device: its layers bfloat16 on a GPU, else float32."""
        config, on_gpu = source.sizes, device.type == 'cuda'
        network = self._unshaped(config, device)
        if source.folder:
            keys = self.keys[config.architecture]
            checkpoint.load(source.folder, network, device, keys, progress)
            self.shape(network, config)
        else:
            self.shape(network, config)
            layers.randomise(network.to_empty(device=device), model.seed,
                             device if on_gpu else 'cpu')
        if on_gpu:
            compile_layers(network, self.compiled)
        return self.model(config, network, source.processing)

    def inspect(self, folder: Path, tokenizer: str = '') -> Description:
        """Say what a checkpoint folder holds, and what it lacks."""
        found = self.read_folder(folder)
        with torch.device('meta'):
            network = self.network(found.config)
        problems = misfits(folder, network, self.keys[found.config.architecture])
        try:
            found.tokenizer(tokenizer)
        except (CheckpointError, ImportError) as error:
            problems = (*problems, str(error))
        path = find_tokenizer(folder, tokenizer)
        described = found.describe(str(path) if path else None, problems)
        return replace(described, notes=(*described.notes, *describe_adapter(folder)))

    def _unshaped(self, config: Any, device: torch.device) -> Any:
        with torch.device('meta'):
            network = self.network(config).requires_grad_(False)
        network.to_layers_dtype(torch.bfloat16 if device.type == 'cuda' else torch.float32)
        return network


class FamilyModel:
    """What the models of all families do alike; protocol.Model says what each function is for."""

    def __init__(self, network: Any, processing: Processing) -> None:
        self.config, self.network, self.processing = processing.config, network, processing
        self.spec: ModelSpec = self.config.spec

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        return self.processing.preprocess(observation)

    @property
    def denoising_steps(self) -> int:
        """How many steps lead from noise to actions."""
        steps: int = self.config.steps
        return steps

    def noise(self, seeds: Sequence[int]) -> Tensor:
        """Draw the noise [B, T, A'] of a batch on the CPU, row i from seeds[i] alone."""
        return layers.draw_noise(seeds, self.config.horizon, self.config.padded_size)

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        return self.processing.postprocess(actions, observation)


def without_checkpoint(model: ModelConfig, config: Any, most: tuple[int, int],
                       **seen: Any) -> Any:
    """
    Return sizes for the robots of a model with random weights.

    A state and an action have at most most values; seen is what config says of the cameras.
    """
    joints, actions = len(model.joints), len(model.action_names)
    for field, given, limit in zip(('joints', 'actions'), (joints, actions), most, strict=True):
        if given > limit:
            raise FieldError(field, f'are {given}, {model.architecture} takes at most {limit}')
    return replace(config, state_size=joints, action_size=actions,
                   step_duration=model.step_duration or config.step_duration, **seen)
