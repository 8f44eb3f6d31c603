# SPDX-License-Identifier: Apache-2.0
"""
Checkpoints: a folder with config.json and model.safetensors, checked as a whole when read.

Weights stream from the file to the device, one tensor at a time; pickles are never read.
Knows no architecture: it is given the dataclass of a configuration and the module to fill.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, MISSING
from difflib import get_close_matches
from itertools import islice
import json
from pathlib import Path
from types import GenericAlias
from typing import Any, get_args, TypeVar

from safetensors import safe_open, SafetensorError
from safetensors.torch import save_file
import torch
from torch import nn, Tensor

from robion_ros.config import nearest
from robion_ros.models.layers import FusedLinear

CONFIG, WEIGHTS = 'config.json', 'model.safetensors'
FLOATS = ('F64', 'F32', 'BF16', 'F16')
SHOWN = 8
"""Most tensors that one error names."""

Config = TypeVar('Config')


class CheckpointError(ValueError):
    """A checkpoint is not what the model needs; the message says what, where and the mend."""


def named_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights by their names in a checkpoint; parts of fused ones are views."""
    weights: dict[str, Tensor] = dict(module.named_parameters())
    for name, layer in module.named_modules():
        if isinstance(layer, FusedLinear):
            parent = name[:name.rfind('.') + 1]
            for kind, whole in layer.named_parameters():
                del weights[f'{name}.{kind}']
                views = torch.split(whole, list(layer.parts.values()))
                weights |= {f'{parent}{part}.{kind}': view
                            for part, view in zip(layer.parts, views, strict=True)}
    return weights


def save(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write a checkpoint; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    save_file(kept, folder / WEIGHTS, metadata={'format': 'pt'})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + '\n', encoding='utf-8')


def read_json(folder: Path) -> dict[str, Any]:
    """Return what config.json holds."""
    path = _file(folder, CONFIG)
    try:
        values = json.loads(path.read_text(encoding='utf-8'))
    except ValueError as error:
        raise CheckpointError(f'{path} is not JSON: {error}') from error
    if not isinstance(values, dict):
        raise CheckpointError(f'{path} holds a {type(values).__name__}, must be an object')
    return values


def read_config(folder: Path, kind: type[Config], architecture: str) -> Config:
    """Return config.json as a dataclass of ints, floats, strings and tuples of these."""
    path, values = folder / CONFIG, read_json(folder)
    found = values.pop('architecture', None)
    if found != architecture:
        raise CheckpointError(f'{path}: architecture is {found!r}, the model is configured as '
                              f'{architecture!r}')
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise CheckpointError(f'{path}: unknown key {key!r}; {nearest(key, known)}')
    missing = [key for key, field in known.items()
               if key not in values and field.default is MISSING]
    if missing:
        raise CheckpointError(f'{path}: {", ".join(missing)} missing')
    try:
        return kind(**{key: _convert(key, value, known[key].type)
                       for key, value in values.items()})
    except ValueError as error:
        raise CheckpointError(f'{path}: {error}') from error


def load(folder: Path, module: nn.Module, device: torch.device,
         rename: Callable[[str], str | None] = str) -> None:
    """
    Move a module from the meta device to device and fill it from model.safetensors.

    rename turns a name in the file into one of named_weights, or into None where the model has
    no use for the tensor. Everything but the numbers is checked before memory is taken.
    """
    path = _file(folder, WEIGHTS)
    try:
        with safe_open(path, framework='pt') as file:
            sources = _match(file, named_weights(module), rename, path)
            module.to_empty(device=device)
            for name, weight in named_weights(module).items():
                weight.data.copy_(file.get_tensor(sources[name]))
                if not torch.stack(weight.data.aminmax()).isfinite().all():
                    raise CheckpointError(f'{path}: {sources[name]} has values that are not '
                                          'finite')
    except SafetensorError as error:
        raise CheckpointError(f'{path} is damaged, copy it again: {error}') from error


def _match(file: Any, weights: Mapping[str, Tensor], rename: Callable[[str], str | None],
           path: Path) -> dict[str, str]:
    """Return the name in the file of each weight; raise CheckpointError unless all fit."""
    named = [(name, key) for key in sorted(file.keys()) if (name := rename(key)) is not None]
    sources = dict(named)
    problems = list(islice(_problems(file, weights, named, sources), SHOWN + 1))
    if problems:
        more = ['and more'] if len(problems) > SHOWN else []
        raise CheckpointError('\n'.join([f'{path} does not fit the model:', *problems[:SHOWN],
                                         *more]))
    return sources


def _problems(file: Any, weights: Mapping[str, Tensor], named: list[tuple[str, str]],
              sources: Mapping[str, str]) -> Iterator[str]:
    missing = [name for name in weights if name not in sources]
    unexpected = [name for name in sources if name not in weights]
    for name, key in named:
        if key != sources[name]:
            yield f'{key} and {sources[name]} are both {name} of the model'
        elif name not in weights:
            yield f'{key} is no tensor of the model{_nearest(name, missing or weights)}'
        elif (shape := file.get_slice(key).get_shape()) != list(weights[name].shape):
            yield f'{key} has shape {shape}, the model takes {list(weights[name].shape)}'
        elif (dtype := file.get_slice(key).get_dtype()) not in FLOATS:
            yield f'{key} holds {dtype}, the model takes one of {", ".join(FLOATS)}'
    for name in missing:
        yield (f'{name} {list(weights[name].shape)} is missing'
               f'{_nearest(name, unexpected or sources)}')


def _nearest(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, list(names), 1)
    return f'; nearest is {close[0]!r}' if close else ''


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not folder.is_dir():
        raise CheckpointError(f'checkpoint {folder} is not a folder')
    if not path.is_file():
        found = ', '.join(sorted(entry.name for entry in folder.iterdir())) or 'nothing'
        raise CheckpointError(f'checkpoint {folder} has no {name}; it has {found}')
    return path


def _convert(key: str, value: object, wanted: Any) -> object:
    """Return a JSON value as the type that a field wants."""
    if isinstance(wanted, GenericAlias):
        if not isinstance(value, list):
            raise ValueError(f'{key} is {value!r}, must be a list')
        return tuple(_convert(f'{key}[{index}]', item, get_args(wanted)[0])
                     for index, item in enumerate(value))
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError(f'{key} is {value!r}, must be of type {wanted.__name__}')
    return value
