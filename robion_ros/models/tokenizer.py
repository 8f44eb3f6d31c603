# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of the tiny model: the bytes of the text. Needs no files, knows no model."""

PADDING, BEGIN = 0, 1
VOCABULARY = 256 + 2


def byte_tokens(text: str) -> list[int]:
    """Return the tokens of an instruction: begin, then one for each byte of its UTF-8."""
    return [BEGIN, *(byte + 2 for byte in text.encode(errors='surrogatepass'))]
