# SPDX-License-Identifier: Apache-2.0
"""
Files of a checkpoint folder, and what is said of one that is missing or not what it should be.

Knows neither layouts nor tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import json
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar('Value')

CONFIG = 'config.json'
SHOWN = 12
"""Most names of files in an error."""


class CheckpointError(ValueError):
    """A checkpoint is not what the model needs; the message says what, where and the mend."""


def require(folder: Path, name: str, mend: str = '') -> Path:
    """Return the path of a file; raise CheckpointError, with the mend, where there is none."""
    path = folder / name
    if not folder.is_dir():
        what = 'is not a folder' if folder.exists() else 'does not exist'
        raise CheckpointError(f'checkpoint {folder} {what}; give the folder that holds {name}, or '
                              'owner/name for a model of the Hugging Face hub')
    if path.is_file():
        return path
    found = sorted(entry.name for entry in folder.iterdir())
    inner = sorted(entry.parent.name for entry in folder.glob(f'*/{name}'))
    if inner and not mend:
        mend = f'did you mean {folder / inner[0]}?'
    listed = ', '.join(found[:SHOWN] + ['...'] * (len(found) > SHOWN)) or 'nothing'
    raise CheckpointError(f'checkpoint {folder} has no {name}; it has {listed}'
                          + (f'; {mend}' if mend else ''))


def read_json(folder: Path, name: str = CONFIG, mend: str = '') -> dict[str, Any]:
    """Return the object that a JSON file of the folder holds."""
    path = require(folder, name, mend)
    values = parse_json(path)
    if not isinstance(values, dict):
        raise CheckpointError(f'{path} holds a {type(values).__name__}, must be an object')
    return values


def parse_json(path: Path) -> Any:
    """Return what a JSON file holds; raise CheckpointError where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise CheckpointError(f'{path} cannot be read: {error.strerror}') from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f'{path} is not JSON: {error}') from error


@dataclass(frozen=True)
class Fields:
    """What a JSON file holds, with errors that name it."""

    path: Path
    values: Mapping[str, Any]
    mend: str = ''
    """Ends errors; {} is the key."""

    def read(self, keys: str, kind: type[Value], default: Value | None = None) -> Value:
        """Return a value at keys with points between them, or its default where it has none."""
        *outer, last = keys.split('.')
        values: Any = self.values
        try:
            for key in outer:
                values = unfold(values, key, dict)
            if default is not None and values.get(last) is None:
                return default
            return unfold(values, last, kind)
        except ValueError as error:
            where = f'{keys}: ' if outer else ''
            mend = self.mend.format(keys)
            raise CheckpointError(f'{self.path}: {where}{error}{mend}') from error

    def expect(self, keys: str, wanted: Any) -> None:
        """Raise CheckpointError unless a value is left out or the one that is served."""
        found = self.read(keys, type(wanted), wanted)
        if found != wanted:
            raise CheckpointError(f'{self.path}: {keys} is {found!r}, only {wanted!r} is served')


def unfold(values: Any, key: str, kind: type[Value]) -> Value:
    """Return what stands at a key; raise ValueError unless it is there and of a kind."""
    if not isinstance(values, dict) or key not in values:
        raise ValueError(f'{key} is missing')
    value = values[key]
    # A truth value is no number, and a whole number is one.
    if kind is float and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise ValueError(f'{key} is too large a number') from None
    if type(value) is not kind:
        raise ValueError(f'{key} is {value!r:.80}, must be of type {kind.__name__}')
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f'{key} is {value}, must be finite')
    return value
