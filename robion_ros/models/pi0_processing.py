# SPDX-License-Identifier: Apache-2.0
"""
What pi0 and pi0.5 make of an observation, and of the chunk that their networks give.

Prompts are worded as the code words them that a checkpoint comes from; pictures, units and the
tokenizer are arguments. Knows neither networks nor files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from robion_ros.core import Observation
from robion_ros.models import pictures
from robion_ros.models.pi0_config import Pi0Config
from robion_ros.models.processing import (
    check_observation,
    IDENTITY,
    pad_tokens,
    pad_values,
    Units,
)
from robion_ros.models.protocol import Tensors
from robion_ros.models.tokenizer import ByteTokenizer, PADDING, Tokenizer

STATE_BINS = np.linspace(-1, 1, 257)[:-1]
CACHED = 1024
"""Prompts whose tokens are remembered."""

BYTES = ByteTokenizer()

Wording = Callable[[str], tuple[str, ...]]
"""Turns an instruction into parts, the tokens of which follow each other."""


def openpi_words(prompt: str) -> tuple[str, ...]:
    """Word an instruction as openpi does; the end of the line is tokenized on its own."""
    return clean(prompt), '\n'


def lerobot_words(prompt: str) -> tuple[str, ...]:
    """Word an instruction as lerobot does for pi0: as it is, with the end of the line."""
    return (prompt if prompt.endswith('\n') else f'{prompt}\n',)


def clean(prompt: str) -> str:
    """Return an instruction as both word it for pi0.5, and openpi for pi0."""
    return prompt.strip().replace('_', ' ').replace('\n', ' ')


@dataclass(frozen=True, eq=False)
class Pi0Processing:
    """Everything between a robot's units and those of the network."""

    config: Pi0Config
    tokenizer: Tokenizer = BYTES
    picture: Callable[[np.ndarray, int], Tensor] = pictures.plain
    wording: Wording = openpi_words
    state: Units = IDENTITY
    actions: Units = IDENTITY
    relative: np.ndarray | None = None
    """float32 [A]: how much of the state is added to each value of an action."""
    order: tuple[int, ...] | None = None
    """Places of the network's pictures among the robot's; by default they are the same."""

    def __post_init__(self) -> None:
        remembered = lru_cache(CACHED)(self._instruction_tokens)
        object.__setattr__(self, '_remembered', remembered)

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        c = self.config
        check_observation(observation, c.spec)
        seen = [self.picture(observation.images[place], c.image_size)
                for place in self.order or range(c.cameras)]
        state = self.state.apply(observation.state)
        tokens, token_mask = self.tokens(observation.prompt, state)
        own = {} if c.adaptive else {'state': pad_values(state, c.padded_size)}
        return {'images': torch.stack(seen), 'image_mask': torch.ones(len(seen), dtype=torch.bool),
                'tokens': tokens, 'token_mask': token_mask, **own}

    def tokens(self, prompt: str, state: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the tokens of an instruction, and maybe of a state, and which are real."""
        if not self.config.state_in_prompt:
            return self._remembered(prompt)  # type: ignore[attr-defined]
        words = ' '.join(map(str, np.digitize(state, STATE_BINS) - 1))
        return self._padded((f'Task: {clean(prompt)}, State: {words};\nAction: ',))

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        own = actions.numpy(force=True)[:, :self.config.action_size]
        found = self.actions.invert(own)
        if self.relative is not None:
            found = found + observation.state[:found.shape[1]] * self.relative
        return found

    def _instruction_tokens(self, prompt: str) -> tuple[Tensor, Tensor]:
        return self._padded(self.wording(prompt))

    def _padded(self, parts: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        tokens = [self.tokenizer.begin]
        for part in parts:
            tokens += self.tokenizer.encode(part)
        if max(tokens) >= self.config.vocabulary:
            # A GPU would stop for good at an embedding that it does not have.
            raise ValueError(f'the prompt {"".join(parts)!r} holds a word that the tokenizer has '
                             'and the model does not')
        return pad_tokens(tokens, self.config.prompt_tokens, PADDING)
