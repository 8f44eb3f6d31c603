# SPDX-License-Identifier: Apache-2.0
"""
Tokenizers from files: tokenizer.json or vocab.json (tokenizers) or *.model (sentencepiece).

Either package is asked for only when its file is. Knows no model; files are never downloaded.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from robion_ros.models.bpe_files import read_bpe, VOCABULARY
from robion_ros.models.folder import CheckpointError
from robion_ros.models.tokenizer import Tokenizer

NAMES = 'tokenizer.json', 'tokenizer.model', 'paligemma_tokenizer.model', VOCABULARY
"""Looked for beside the weights, in this order."""
BEGIN = '<bos>'


class JsonTokenizer:
    """A file of Hugging Face's tokenizers; without a begin, it adds what its file says."""

    def __init__(self, path: Path, needed: Sequence[str] = (BEGIN,)) -> None:
        package = _import('tokenizers', path)
        self._tokenizer: Any = (read_bpe(package, path) if path.name == VOCABULARY else
                                package.Tokenizer.from_file(str(path)))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        for word in needed:
            if self._tokenizer.token_to_id(word) is None:
                raise ValueError(f'it has no token {word}')
        self.begin: int | None = self._tokenizer.token_to_id(needed[0]) if needed else None
        # Tokens added for other uses, such as <image>, may lie beyond the embeddings.
        self.size: int = self._tokenizer.get_vocab_size(with_added_tokens=False)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without the one that begins a prompt."""
        return list(self._tokenizer.encode(
            text, add_special_tokens=self.begin is None).ids)


class PieceTokenizer:
    """A file of sentencepiece."""

    def __init__(self, path: Path, needed: Sequence[str] = (BEGIN,)) -> None:
        package = _import('sentencepiece', path)
        self._processor: Any = package.SentencePieceProcessor(model_proto=path.read_bytes())
        for word in needed:
            if word != BEGIN and self._processor.is_unknown(self._processor.piece_to_id(word)):
                raise ValueError(f'it has no token {word}')
        self.begin: int | None = self._processor.bos_id()
        if self.begin == -1:
            raise ValueError('it has no token that begins a text')
        self.size: int = self._processor.get_piece_size()

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without the one that begins a prompt."""
        return list(self._processor.encode(text))


def find_tokenizer(folder: Path, configured: str = '') -> Path | None:
    """Return the file that is configured, or else that of the folder, if any."""
    if configured:
        return Path(configured)
    return next((folder / name for name in NAMES if (folder / name).is_file()), None)


def open_tokenizer(folder: Path, configured: str, source: str, vocabulary: int,
                   needed: Sequence[str] = (BEGIN,)) -> Tokenizer:
    """
    Open the tokenizer of a checkpoint with so many embeddings.

    source says, for the error where there is none, which files it has to be; needed are words
    that must be tokens of their own, the first of which begins a prompt. Without any the file is
    a tokenizer.json, which says what begins one.
    """
    path = find_tokenizer(folder, configured)
    if path is None:
        raise CheckpointError(
            f'checkpoint {folder} has no tokenizer: copy {source} there, or name the file with '
            'the key tokenizer of the factory file')
    if not path.is_file():
        raise CheckpointError(f'tokenizer {path} is not a file')
    try:
        kind = PieceTokenizer if needed and path.suffix != '.json' else JsonTokenizer
        tokenizer: Tokenizer = kind(path, needed)
    except ImportError:
        raise
    except Exception as error:  # The packages raise what they like.
        raise CheckpointError(f'tokenizer {path} cannot be read: {error}') from error
    if tokenizer.size > vocabulary:
        raise CheckpointError(f'tokenizer {path} has {tokenizer.size} tokens, the model knows '
                              f'{vocabulary}: it is not the one that the model was trained with, '
                              f'{source}')
    return tokenizer


def _import(name: str, path: Path) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f'{path} needs the package {name}: pip install {name}') from error
