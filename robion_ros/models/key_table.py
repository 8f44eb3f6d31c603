# SPDX-License-Identifier: Apache-2.0
"""
What a model's weights are called in checkpoints of other code.

An architecture is one table: what is cut off, what is renamed, what serves training alone, and
which tensor stands in for a missing one that shares its values. Knows neither files nor models.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
import re

WRAPPERS = 'module.', '_orig_mod.'
"""What training on several GPUs, or compiled, puts before every name."""


@dataclass(frozen=True)
class KeyTable:
    """How the keys of a checkpoint become the names of a model's weights."""

    prefixes: tuple[str, ...] = ()
    """Cut off in this order, each where it is there."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Patterns at the beginning of what is left, the first that fits being replaced."""
    everywhere: Mapping[str, str] = field(default_factory=dict)
    """Parts of a name that are replaced wherever they stand."""
    unused: tuple[str, ...] = ()
    """Beginnings, after the prefixes, of what the model has no use for."""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Name of a weight -> the name of one that holds the same, used where the own is missing."""

    def name(self, key: str) -> str | None:
        """Return the name of a key's weight, None where the model has no use for it."""
        for prefix in (*WRAPPERS, *self.prefixes):
            key = key.removeprefix(prefix)
        if key.startswith(self.unused):
            return None
        for pattern, here in self.renames.items():
            key, found = re.subn(f'^{pattern}', here, key)
            if found:
                break
        for part, here in self.everywhere.items():
            key = key.replace(part, here)
        return key

    def pairs(self, keys: Iterable[str]) -> list[tuple[str, str]]:
        """Return the weight's name and the key of every tensor that the model has a use for."""
        named = [(name, key) for key in keys if (name := self.name(key)) is not None]
        names = {name for name, _ in named}
        for weight, other in self.tied.items():
            if weight in names:
                named = [pair for pair in named if pair[0] != other]
            else:
                named = [(weight if name == other else name, key) for name, key in named]
        return named


def count_layers(stack: str, names: Iterable[str]) -> int:
    """
    Return how many layers a stack has, by the names of its weights: stack.0.weight, ...

    Raise KeyError where one is left out: a wrong number must not make millions of them.
    """
    found = {int(match[1]) for name in names if (match := re.match(rf'{stack}\.(\d+)\.', name))}
    for index in range(max(found, default=0) + 1):
        if index not in found:
            raise KeyError(f'{stack}.{index}')
    return len(found)
