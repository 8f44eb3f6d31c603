# SPDX-License-Identifier: Apache-2.0
"""
The tensors of a checkpoint folder: model.safetensors, or the files that its index names.

Only headers are read until a tensor is asked for, and pickles never. Knows no model.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, ExitStack
import math
from pathlib import Path
from typing import Any

from safetensors import safe_open, SafetensorError
from torch import Tensor

from robion_ros.models.folder import CheckpointError, parse_json, require, unfold

WEIGHTS, INDEX = 'model.safetensors', 'model.safetensors.index.json'
ADAPTER = 'adapter_model.safetensors'
"""Where a folder has an adapter, and a base elsewhere, instead."""
BYTES = {'F64': 8, 'F32': 4, 'BF16': 2, 'F16': 2, 'I64': 8, 'I32': 4}
"""Of one value."""


class Shards:
    """Names, shapes and types of a checkpoint's tensors; their values one by one."""

    def __init__(self, place: Path, homes: Mapping[str, tuple[Path, Any]]) -> None:
        self.place = place
        """What errors name: the file, or the index of several."""
        self._homes = homes
        self.keys = tuple(sorted(homes))
        with self._readable():
            slices = {key: homes[key][1].get_slice(key) for key in self.keys}
            self.shapes = {key: tuple(part.get_shape()) for key, part in slices.items()}
            self.dtypes = {key: str(part.get_dtype()) for key, part in slices.items()}

    def tensor(self, key: str) -> Tensor:
        """Return a tensor on the CPU; its memory is the file's."""
        path, file = self._homes[key]
        with self._readable(path):
            tensor: Tensor = file.get_tensor(key)
            return tensor

    def nbytes(self, key: str) -> int:
        """Return the size of a tensor in its file."""
        return math.prod(self.shapes[key]) * BYTES.get(self.dtypes[key], 1)

    @contextmanager
    def _readable(self, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except SafetensorError as error:
            raise CheckpointError(f'{path or self.place} is damaged, copy it again: '
                                  f'{error}') from error


@contextmanager
def open_shards(folder: Path) -> Iterator[Shards]:
    """Open the weights of a checkpoint folder."""
    files = weight_files(folder)
    with open_files(folder / (INDEX if len(files) > 1 else WEIGHTS), files) as shards:
        yield shards


@contextmanager
def open_files(place: Path, paths: Iterable[Path]) -> Iterator[Shards]:
    """Open safetensors files; errors name place."""
    with ExitStack() as stack:
        files = {}
        for path in paths:
            try:
                files[path] = stack.enter_context(safe_open(path, framework='pt'))
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f'{path} is damaged, copy it again: {error}') from error
        homes: dict[str, tuple[Path, Any]] = {}
        for path, file in files.items():
            for key in file.keys():  # noqa: SIM118  (not a mapping)
                if key in homes:
                    raise CheckpointError(f'{key} stands in {homes[key][0]} and in {path}')
                homes[key] = path, file
        yield Shards(place, homes)


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter, and not the weights of a whole policy."""
    return (folder / ADAPTER).is_file() and not (folder / WEIGHTS).is_file()


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a checkpoint's weights; raise CheckpointError where one is missing."""
    index = folder / INDEX
    if (folder / WEIGHTS).is_file() or not index.is_file():
        return (require(folder, WEIGHTS),)
    try:
        named = unfold(parse_json(index), 'weight_map', dict)
        names = sorted({str(name) for name in named.values()})
    except ValueError as error:
        raise CheckpointError(f'{index} is no index of safetensors files: {error}') from error
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f'{index} names {name!r}, must be a file beside it')
    return tuple(require(folder, name) for name in names)
