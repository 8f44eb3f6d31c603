# SPDX-License-Identifier: Apache-2.0
"""
What GR00T N1.5 makes of an observation, and of the chunk that its network gives.

The text is Eagle's chat: the pictures of the cameras, each with its number, then the instruction,
worded as the code words it that a checkpoint comes from. Pictures, units and the tokenizer are
arguments. Knows neither networks nor files.
"""

from dataclasses import dataclass, replace
import re
from zlib import crc32

from torch import Tensor

from robion_ros.models.gr00t_config import Gr00tConfig
from robion_ros.models.gr00t_pictures import squeezed
from robion_ros.models.policy_processing import Picture, PolicyProcessing, Wording
from robion_ros.models.processing import pad_tokens
from robion_ros.models.tokenizer import PADDING, Tokenizer

BEGIN = '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n'
END = '<|im_end|>\n<|im_start|>assistant\n'
OPENING, CLOSING = '<image {}><img>', '</img>'
SPECIAL = '<|im_start|>', '<|im_end|>', '<img>', '</img>', '<IMG_CONTEXT>'
"""Words that are one token each."""
STANDS_FOR_A_PICTURE = re.compile(r'<(image|video)-\d+>|<IMG_CONTEXT>')


def isaac_words(prompt: str) -> tuple[str]:
    """Word an instruction as Isaac-GR00T does: as it is."""
    return (prompt,)


def lerobot_words(prompt: str) -> tuple[str]:
    """Word an instruction as lerobot does: as a list of Python."""
    return (str([prompt]),)


def formal_words(prompt: str) -> tuple[str]:
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
class Gr00tProcessing(PolicyProcessing):
    """Everything between a robot's units and those of the network."""

    config: Gr00tConfig
    picture: Picture = squeezed
    wording: Wording = lerobot_words
    """The text that stands behind the pictures."""
    frame: tuple[int, ...] = ()
    """Tokens of the text before the last picture's end, those before each picture in a row."""

    @classmethod
    def open(cls, config: Gr00tConfig, tokenizer: Tokenizer, **rest: object) -> 'Gr00tProcessing':
        """Return the processing with the text around so many pictures tokenized."""
        texts = [BEGIN + OPENING.format(1)]
        texts += [CLOSING + OPENING.format(number) for number in range(2, config.cameras + 1)]
        parts = [tokenizer.encode(text) for text in texts]
        config = replace(config, text_before=tuple(map(len, parts)))
        frame = tuple(token for part in parts for token in part)
        return cls(config, tokenizer, frame=frame, **rest)  # type: ignore[arg-type]

    @classmethod
    def made_up(cls, config: Gr00tConfig) -> 'Gr00tProcessing':
        """Return that of random weights."""
        return cls.open(config, WordTokenizer(config.vocabulary))

    def instruction_tokens(self, prompt: str) -> tuple[Tensor, Tensor]:
        """Return the tokens of the whole text, and which are real."""
        if STANDS_FOR_A_PICTURE.search(prompt):
            raise ValueError(f'the prompt {prompt!r:.200} holds a word that stands for a '
                             'picture')
        tokens = self.tokenizer.encode(CLOSING + ''.join(self.wording(prompt)) + END)
        if len(tokens) - 1 > self.config.prompt_tokens:
            raise ValueError(f'the prompt {prompt!r:.200} has {len(tokens) - 1} tokens with what '
                             f'ends it, the model reads {self.config.prompt_tokens}: shorten it, '
                             "or write tokenizer_max_length into the checkpoint's config.json")
        if max(tokens) >= self.config.vocabulary:
            # A GPU would stop for good at an embedding that it does not have.
            raise ValueError(f'the prompt {prompt!r:.200} holds a word that the tokenizer has '
                             'and the model does not')
        return pad_tokens([*self.frame, *tokens], self.config.text_tokens, PADDING)
