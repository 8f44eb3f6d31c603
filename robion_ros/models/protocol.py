# SPDX-License-Identifier: Apache-2.0
"""
What the engine asks of a model: two stages between a pre- and a post-processing.

preprocess and postprocess see one robot at a time and run on the CPU, in any thread; vlm and
adit see a batch, run on the device, and must not wait for it. A model knows neither queues,
nor deadlines, nor ROS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from robion_ros.core import Observation

Tensors = Mapping[str, torch.Tensor]
"""Named tensors; a stage's inputs and hand-over. The first axis is the batch."""


@dataclass(frozen=True)
class ModelSpec:
    """The interface of a loaded model to a robot."""

    architecture: str
    cameras: int
    """How many images an observation holds."""
    state_size: int
    horizon: int
    """Steps in a chunk."""
    action_size: int
    step_duration: float
    """Time between two steps of a chunk, s."""


class Model(Protocol):
    """A Vision-Language-Action model in two stages."""

    spec: ModelSpec

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""

    def vlm(self, inputs: Tensors) -> Tensors:
        """Run the VLM stage: stacked inputs [B, ...] to the context the ADiT stage needs."""

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Run every denoising step: context and noise [B, T, A'] to actions [B, T, A']."""

    def noise(self, seeds: Sequence[int]) -> torch.Tensor:
        """Draw the noise [B, T, A'] of a batch on the CPU, row i from seeds[i] alone."""

    def postprocess(self, actions: torch.Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""


@runtime_checkable
class Stepped(Protocol):
    """
    A model whose ADiT stage can also run one denoising step at a time, rows at different steps.

    denoising_steps calls of adit_step give what one call of adit gives. Of what adit_begin
    returned, only adit_step writes to any of it, and only to rows of its own.
    """

    denoising_steps: int

    def adit_begin(self, context: Tensors) -> Tensors:
        """Turn a context into what every step of its rows needs, first axis the batch."""

    def adit_step(self, begun: Tensors, actions: torch.Tensor,
                  steps: torch.Tensor) -> torch.Tensor:
        """
        Run one step: actions [B, T, A'], at first noise, to those of the next step.

        steps, int64 [B] on the device, counts each row's steps from 0; it is not looked at by
        the CPU, so that a call can be captured.
        """
