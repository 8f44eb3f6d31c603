# SPDX-License-Identifier: Apache-2.0
"""
Tokenizers of Qwen from the files that they were published in before tokenizer.json.

These are vocab.json, and beside it merges.txt and added_tokens.json. Knows no model.
"""

import json
from pathlib import Path
from typing import Any

VOCABULARY, MERGES, ADDED = 'vocab.json', 'merges.txt', 'added_tokens.json'
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r'|\s*[\r\n]+|\s+(?!\S)|\s+')
"""Splits a text before its pieces are looked for."""


def read_bpe(package: Any, path: Path) -> Any:
    """Return the Tokenizer of the package tokenizers that a vocab.json and its like make."""
    parts = package.models.BPE.read_file(str(path), str(path.with_name(MERGES)))
    tokenizer = package.Tokenizer(package.models.BPE(*parts))
    tokenizer.normalizer = package.normalizers.NFC()
    split = package.pre_tokenizers.Split(package.Regex(WORDS), 'isolated')
    spell = package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = package.pre_tokenizers.Sequence([split, spell])
    added = path.with_name(ADDED)
    if added.is_file():
        places = json.loads(added.read_text(encoding='utf-8'))
        names = sorted(places, key=places.__getitem__)
        tokenizer.add_special_tokens([
            package.AddedToken(name, normalized=False, special=True) for name in names])
        for name in names:
            if tokenizer.token_to_id(name) != places[name]:
                raise ValueError(f'{ADDED} says that {name} is {places[name]}, and it would be '
                                 f'{tokenizer.token_to_id(name)}')
    return tokenizer
