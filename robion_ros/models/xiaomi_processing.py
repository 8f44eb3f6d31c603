# SPDX-License-Identifier: Apache-2.0
"""
What Xiaomi-Robotics-0 makes of an observation, and of the chunk that its network gives.

Pictures stand between the words of a prompt; here they come first, and every token says where it
stands. Sizes, views, units and the tokenizer are arguments. Knows neither networks nor files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from robion_ros.core import Observation
from robion_ros.models.pictures import cropped, quick, stretched
from robion_ros.models.processing import (
    check_observation,
    IDENTITY,
    pad_values,
    Units,
)
from robion_ros.models.protocol import Tensors
from robion_ros.models.qwen3_vl import ABSENT
from robion_ros.models.tokenizer import ByteTokenizer, PADDING, Tokenizer
from robion_ros.models.xiaomi_config import XiaomiConfig

CACHED = 1024
"""Prompts whose tokens are remembered."""
BYTES = ByteTokenizer()
Scaling = tuple[tuple[float, ...], tuple[float, ...]]


def scaling(factor: float, mean: Sequence[float], deviation: Sequence[float]) -> Scaling:
    """Return what pixels are multiplied with, and what is added then, by colour."""
    return (tuple(factor / each for each in deviation),
            tuple(-offset / each for offset, each in zip(mean, deviation, strict=True)))


HALVES = scaling(1 / 255, (0.5,) * 3, (0.5,) * 3)
"""From 0 ... 255 to -1 ... 1."""


def words_of(views: Sequence[str], instruction: str) -> tuple[str, ...]:
    """Word a prompt as in training; a picture stands between two parts that follow each other."""
    text = ('<|im_start|>user\nThe following observations are captured from multiple views.\n'
            + ''.join(f'# {view}\n<|vision_start|>\0<|vision_end|>\n' for view in views)
            + 'Generate robot actions for the task:\n')
    *parts, last = text.split('\0')
    return (*parts, f'{last}{instruction} /no_cot<|im_end|>\n<|im_start|>assistant\n'
                    '<cot></cot><|im_end|>\n')


@dataclass(frozen=True)
class Layout:
    """The tokens of a prompt and its pictures: first all pictures', then the text's."""

    tokens: Tensor
    """int64 [P], of the text."""
    order: Tensor
    """int64 [L], from 0 in the order that they are read in; ABSENT: there is none."""
    places: Tensor
    """int64 [3, L]: time, row and column."""


@dataclass(frozen=True, eq=False)
class XiaomiProcessing:
    """Everything between a robot's units and those of the network."""

    config: XiaomiConfig
    tokenizer: Tokenizer = BYTES
    views: tuple[str, ...] | None = None
    """What the prompt calls the cameras; None: it is the instruction alone."""
    sizes: tuple[tuple[int, int], ...] | None = None
    """Rows and columns that pictures are brought to first; None: nobody was trained with any."""
    crop: float = 1.0
    """Part of each side that is kept, in the middle."""
    scaling: Scaling = HALVES
    """Of pixels, 0 to 255."""
    actions: Units = IDENTITY
    mask: np.ndarray | None = None
    """float32 [T, A']: 0 for values of an action that the robot does not have; None: none."""
    order: tuple[int, ...] | None = None
    """Places of the network's pictures among the robot's; by default they are the same."""

    def __post_init__(self) -> None:
        object.__setattr__(self, '_remembered', lru_cache(CACHED)(self.lay_out))

    @property
    def active(self) -> np.ndarray:
        """float32 [T, A'], what a chunk is multiplied with before the network reads it."""
        if self.mask is None:
            return np.ones((self.config.horizon, self.config.padded_size), np.float32)
        return self.mask

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        c = self.config
        check_observation(observation, c.spec)
        layout: Layout = self._remembered(observation.prompt)  # type: ignore[attr-defined]
        order = self.order or range(len(c.pictures))
        pictures = {f'picture_{index}': self.picture(observation.images[place], index)
                    for index, place in enumerate(order)}
        return {**pictures, 'tokens': layout.tokens, 'order': layout.order,
                'places': layout.places, 'state': pad_values(observation.state, c.padded_size)}

    def picture(self, image: np.ndarray, index: int) -> Tensor:
        """Return a camera's picture, uint8 [H, W, 3], as the network sees it."""
        seen = self.config.pictures[index]
        if self.sizes is None:
            return torch.from_numpy(quick(image, *seen))
        image = stretched(image, *self.sizes[index])
        if self.crop < 1:
            image = stretched(cropped(image, self.crop), *self.sizes[index], smooth=False)
        return torch.from_numpy(np.ascontiguousarray(stretched(image, *seen)))

    def lay_out(self, prompt: str) -> Layout:
        """Return the tokens of an instruction and where they and the pictures' stand."""
        c = self.config
        parts = (words_of(self.views, prompt) if self.views is not None
                 else (*('',) * len(c.pictures), prompt))
        tokens: list[int] = []
        pictures, texts = [], []
        place = number = 0
        for index, part in enumerate(parts):
            words = self.tokenizer.encode(part)
            tokens += words
            steps = np.arange(len(words))
            texts.append(np.stack((number + steps, *(place + steps,) * 3)))
            place, number = place + len(words), number + len(words)
            if index < len(c.grids):
                rows, columns = c.grids[index]
                row, column = np.divmod(np.arange(rows * columns), columns)
                pictures.append(np.stack((number + np.arange(rows * columns),
                                          np.full_like(row, place), place + row, place + column)))
                place, number = place + max(rows, columns), number + rows * columns
        self._check(prompt, tokens)
        rest = c.prompt_tokens - len(tokens)
        missing = np.tile(np.array([[ABSENT], [0], [0], [0]]), rest)
        whole = torch.from_numpy(np.concatenate((*pictures, *texts, missing), 1))
        return Layout(torch.tensor(tokens + [PADDING] * rest), whole[0].contiguous(),
                      whole[1:].contiguous())

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        return self.actions.invert(actions.numpy(force=True)[:, :self.config.action_size])

    def _check(self, prompt: str, tokens: list[int]) -> None:
        c = self.config
        if len(tokens) > c.prompt_tokens:
            raise ValueError(f'the prompt {prompt!r:.200} makes {len(tokens)} tokens, the model '
                             f'takes {c.prompt_tokens}: shorten it')
        if max(tokens) >= c.vocabulary or c.image_token in tokens:
            # A GPU would stop for good at an embedding that it does not have.
            raise ValueError(f'the prompt {prompt!r:.200} holds a word that the tokenizer has and '
                             'an instruction cannot have')
