# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of models without a checkpoint: the bytes of the text. Knows no model."""

from typing import Protocol

PADDING, BEGIN = 0, 1
VOCABULARY = 256 + 2


class Tokenizer(Protocol):
    """Turns text into tokens; called in any thread."""

    begin: int | None
    """What a prompt begins with; None: nothing, or what encode puts there."""
    size: int
    """Tokens there are, without those added for other uses."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without the one that begins a prompt."""


class ByteTokenizer:
    """One token for each byte of a text's UTF-8."""

    begin: int | None = BEGIN
    size = VOCABULARY

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without the one that begins a prompt."""
        return [byte + 2 for byte in text.encode(errors='surrogatepass')]


def byte_tokens(text: str) -> list[int]:
    """Return the tokens of an instruction: begin, then one for each byte of its UTF-8."""
    return [BEGIN, *ByteTokenizer().encode(text)]
