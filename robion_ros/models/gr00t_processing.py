# SPDX-License-Identifier: Apache-2.0
"""
What GR00T N1.5 makes of an observation, and of the chunk that its network gives.

The text is Eagle's chat: the pictures of the cameras, each with its number, then the instruction,
worded as the code words it that a checkpoint comes from. Pictures, units and the tokenizer are
arguments. Knows neither networks nor files.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
import re
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from robion_ros.core import Observation
from robion_ros.models.gr00t_config import Gr00tConfig
from robion_ros.models.gr00t_pictures import squeezed
from robion_ros.models.isaac_units import Change
from robion_ros.models.processing import check_observation, IDENTITY, pad_tokens, pad_values
from robion_ros.models.protocol import Tensors
from robion_ros.models.tokenizer import PADDING, Tokenizer

BEGIN = '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n'
END = '<|im_end|>\n<|im_start|>assistant\n'
OPENING, CLOSING = '<image {}><img>', '</img>'
SPECIAL = '<|im_start|>', '<|im_end|>', '<img>', '</img>', '<IMG_CONTEXT>'
"""Words that are one token each."""
STANDS_FOR_A_PICTURE = re.compile(r'<(image|video)-\d+>|<IMG_CONTEXT>')
CACHED = 1024
"""Prompts whose tokens are remembered."""

Wording = Callable[[str], str]
"""Turns an instruction into the text that stands behind the pictures."""


def isaac_words(prompt: str) -> str:
    """Word an instruction as Isaac-GR00T does: as it is."""
    return prompt


def lerobot_words(prompt: str) -> str:
    """Word an instruction as lerobot does: as a list of Python."""
    return str([prompt])


def formal_words(prompt: str) -> str:
    """Word it so after everything but small letters, digits and spaces is taken out."""
    kept = ''.join(letter for letter in prompt.lower() if letter.isalnum() or letter.isspace())
    return lerobot_words(kept)


class WordTokenizer:
    """One token for each word of a text: about as many as a trained tokenizer finds."""

    begin: int | None = None

    def __init__(self, vocabulary: int) -> None:
        self.size = vocabulary

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        words = re.findall(r'<[^<> ]+>| ?[^\W\d]+|\d|\s|[^\w\s]', text)
        return [1 + crc32(word.encode(errors='surrogatepass')) % (self.size - 1)
                for word in words]


@dataclass(frozen=True, eq=False)
class Gr00tProcessing:
    """Everything between a robot's units and those of the network."""

    config: Gr00tConfig
    tokenizer: Tokenizer
    frame: tuple[int, ...]
    """Tokens of the text before the last picture's end, those before each picture in a row."""
    picture: Callable[[np.ndarray, int], Tensor] = squeezed
    wording: Wording = lerobot_words
    state: Change = IDENTITY
    actions: Change = IDENTITY
    order: tuple[int, ...] | None = None
    """Places of the network's pictures among the robot's; by default they are the same."""

    def __post_init__(self) -> None:
        remembered = lru_cache(CACHED)(self._tokens)
        object.__setattr__(self, '_remembered', remembered)

    @classmethod
    def open(cls, config: Gr00tConfig, tokenizer: Tokenizer, **rest: object) -> 'Gr00tProcessing':
        """Return the processing with the text around so many pictures tokenized."""
        texts = [BEGIN + OPENING.format(1)]
        texts += [CLOSING + OPENING.format(number) for number in range(2, config.cameras + 1)]
        parts = [tokenizer.encode(text) for text in texts]
        config = replace(config, text_before=tuple(map(len, parts)))
        frame = tuple(token for part in parts for token in part)
        return cls(config, tokenizer, frame, **rest)  # type: ignore[arg-type]

    @classmethod
    def made_up(cls, config: Gr00tConfig) -> 'Gr00tProcessing':
        """Return that of random weights."""
        return cls.open(config, WordTokenizer(config.vocabulary))

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        c = self.config
        check_observation(observation, c.spec)
        seen = [self.picture(observation.images[place], c.image_size)
                for place in self.order or range(c.cameras)]
        state = self.state.apply(observation.state)[:c.padded_state]
        tokens, token_mask = self._remembered(observation.prompt)  # type: ignore[attr-defined]
        return {'images': torch.stack(seen), 'image_mask': torch.ones(len(seen), dtype=torch.bool),
                'tokens': tokens, 'token_mask': token_mask,
                'state': pad_values(state, c.padded_state)}

    def postprocess(self, actions: Tensor) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        return self.actions.invert(actions.numpy(force=True)[:, :self.config.action_size])

    def _tokens(self, prompt: str) -> tuple[Tensor, Tensor]:
        """Return the tokens of the whole text, and which are real."""
        if STANDS_FOR_A_PICTURE.search(prompt):
            raise ValueError(f'the prompt {prompt!r:.200} holds a word that stands for a '
                             'picture')
        tokens = self.tokenizer.encode(CLOSING + self.wording(prompt) + END)
        if len(tokens) - 1 > self.config.prompt_tokens:
            raise ValueError(f'the prompt {prompt!r:.200} has {len(tokens) - 1} tokens with what '
                             f'ends it, the model reads {self.config.prompt_tokens}: shorten it, '
                             "or write tokenizer_max_length into the checkpoint's config.json")
        if max(tokens) >= self.config.vocabulary:
            # A GPU would stop for good at an embedding that it does not have.
            raise ValueError(f'the prompt {prompt!r:.200} holds a word that the tokenizer has '
                             'and the model does not')
        return pad_tokens([*self.frame, *tokens], self.config.text_tokens, PADDING)
