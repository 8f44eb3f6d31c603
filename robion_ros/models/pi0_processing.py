# SPDX-License-Identifier: Apache-2.0
"""
What pi0 and pi0.5 make of an observation beyond what every policy does.

Prompts are worded as openpi words them, and pi0.5's state is written into its prompt. Knows
neither networks nor files.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from robion_ros.core import Observation
from robion_ros.models.policy_processing import PolicyProcessing, Wording
from robion_ros.models.protocol import Tensors

STATE_BINS = np.linspace(-1, 1, 257)[:-1]


def openpi_words(prompt: str) -> tuple[str, ...]:
    """Word an instruction as openpi does; the end of the line is tokenized on its own."""
    return clean(prompt), '\n'


def clean(prompt: str) -> str:
    """Return an instruction as both word it for pi0.5, and openpi for pi0."""
    return prompt.strip().replace('_', ' ').replace('\n', ' ')


@dataclass(frozen=True, eq=False)
class Pi0Processing(PolicyProcessing):
    """Everything between a robot's units and those of the network."""

    wording: Wording = openpi_words

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        found = super().preprocess(observation)
        if not self.config.adaptive:
            return found
        return {name: tensor for name, tensor in found.items() if name != 'state'}

    def tokens(self, prompt: str, state: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the tokens of an instruction, and maybe of a state, and which are real."""
        if not self.config.state_in_prompt:
            return super().tokens(prompt, state)
        words = ' '.join(map(str, np.digitize(state, STATE_BINS) - 1))
        return self.padded((f'Task: {clean(prompt)}, State: {words};\nAction: ',))
