# SPDX-License-Identifier: Apache-2.0
"""
What a policy makes of an observation, and of the chunk that its network gives.

Pictures, wording, units and the tokenizer are arguments; an architecture that does more adds it.
Knows neither networks nor files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robion_ros.core import Observation
from robion_ros.models import pictures
from robion_ros.models.processing import (
    Change,
    check_observation,
    IDENTITY,
    pad_tokens,
    pad_values,
)
from robion_ros.models.protocol import Tensors
from robion_ros.models.tokenizer import ByteTokenizer, PADDING, Tokenizer

CACHED = 1024
"""Prompts whose tokens are remembered."""

BYTES = ByteTokenizer()

Picture = Callable[[np.ndarray, int], Tensor]
"""Turns a camera's picture [H, W, 3] into one of a square of some size."""
Wording = Callable[[str], tuple[str, ...]]
"""Turns an instruction into parts, the tokens of which follow each other."""


def lerobot_words(prompt: str) -> tuple[str, ...]:
    """Word an instruction as lerobot does: as it is, with the end of the line."""
    return (prompt if prompt.endswith('\n') else f'{prompt}\n',)


@dataclass(frozen=True, eq=False)
class PolicyProcessing:
    """Everything between a robot's units and those of the network."""

    config: Any
    """Sizes of the architecture."""
    tokenizer: Tokenizer = BYTES
    picture: Picture = pictures.plain
    wording: Wording = lerobot_words
    state: Change = IDENTITY
    actions: Change = IDENTITY
    relative: np.ndarray | None = None
    """float32 [A]: how much of the state is added to each value of an action."""
    order: tuple[int, ...] | None = None
    """Places of the network's pictures among the robot's; by default they are the same."""

    def __post_init__(self) -> None:
        remembered = lru_cache(CACHED)(self.instruction_tokens)
        object.__setattr__(self, '_remembered', remembered)

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        c = self.config
        check_observation(observation, c.spec)
        seen = [self.picture(observation.images[place], c.image_size)
                for place in self.order or range(c.cameras)]
        state = self.state.apply(observation.state)[:c.padded_size]
        tokens, token_mask = self.tokens(observation.prompt, state)
        return {'images': torch.stack(seen), 'image_mask': torch.ones(len(seen), dtype=torch.bool),
                'tokens': tokens, 'token_mask': token_mask,
                'state': pad_values(state, c.padded_size)}

    def tokens(self, prompt: str, state: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the tokens of an instruction, and maybe of a state, and which are real."""
        return self._remembered(prompt)  # type: ignore[attr-defined]

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        own = actions.numpy(force=True)[:, :self.config.action_size]
        found = self.actions.invert(own)
        if self.relative is not None:
            found = found + observation.state[:found.shape[1]] * self.relative
        return found

    def instruction_tokens(self, prompt: str) -> tuple[Tensor, Tensor]:
        """Return those of an instruction alone, which are remembered."""
        return self.padded(self.wording(prompt))

    def padded(self, parts: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """Return the tokens of the parts of a prompt, and which are real."""
        tokens = [] if self.tokenizer.begin is None else [self.tokenizer.begin]
        for part in parts:
            tokens += self.tokenizer.encode(part)
        if max(tokens, default=0) >= self.config.vocabulary:
            # A GPU would stop for good at an embedding that it does not have.
            raise ValueError(f'the prompt {"".join(parts)!r:.200} holds a word that the '
                             'tokenizer has and the model does not')
        return pad_tokens(tokens, self.config.prompt_tokens, PADDING)
