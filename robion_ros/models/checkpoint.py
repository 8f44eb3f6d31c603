# SPDX-License-Identifier: Apache-2.0
"""
Weights from a checkpoint folder into a module, checked as a whole before memory is taken.

They stream from the files to the device, one tensor at a time. Knows no architecture: it is given
the module to fill, and the table of what its weights are called in the files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, MISSING
from difflib import get_close_matches
from itertools import islice
import json
import logging
from pathlib import Path
from time import monotonic
from types import GenericAlias
from typing import Any, get_args, TypeVar

from safetensors.torch import save_file
import torch
from torch import nn, Tensor

from robion_ros.config import nearest
from robion_ros.models.adapter import open_weights
from robion_ros.models.folder import CheckpointError, CONFIG, read_json
from robion_ros.models.key_table import KeyTable
from robion_ros.models.layers import FusedLinear
from robion_ros.models.shards import Shards, WEIGHTS

logger = logging.getLogger(__name__)

FLOATS = ('F64', 'F32', 'BF16', 'F16')
SHOWN = 8
"""Most tensors that one error names."""
LINE_PERIOD = 5.0
"""Between two lines of the log about one checkpoint, s."""

Config = TypeVar('Config')
Progress = Callable[[float, float], None]
"""Is told the part that is done, 0 to 1, and how long the rest will take, s."""


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


def load(folder: Path, module: nn.Module, device: torch.device, keys: KeyTable | None = None,
         progress: Progress | None = None) -> None:
    """
    Move a module from the meta device to device and fill it from the folder's safetensors files.

    keys says what the files call the weights, by default what the module does. Everything but the
    numbers is checked before memory is taken; types are converted one tensor at a time.
    """
    progress = progress or log_progress(folder)
    with open_weights(folder) as shards:
        sources = match(shards, module, keys)
        module.to_empty(device=device)
        begin, done = monotonic(), 0
        whole = sum(shards.nbytes(key) for key in sources.values()) or 1
        for name, weight in named_weights(module).items():
            key = sources[name]
            weight.data.copy_(shards.tensor(key))
            if not torch.stack(weight.data.aminmax()).isfinite().all():
                raise CheckpointError(f'{shards.place}: {key} has values that are not finite')
            done += shards.nbytes(key)
            progress(done / whole, (monotonic() - begin) * (whole - done) / max(done, 1))


def match(shards: Shards, module: nn.Module, keys: KeyTable | None = None) -> dict[str, str]:
    """Return the key of each weight of a module; raise CheckpointError unless all fit."""
    named = (keys or KeyTable()).pairs(shards.keys)
    sources, weights = dict(named), named_weights(module)
    problems = list(islice(_problems(shards, weights, named, sources), SHOWN + 1))
    if problems:
        more = ['and more'] if len(problems) > SHOWN else []
        raise CheckpointError('\n'.join([f'{shards.place} does not fit the model:',
                                         *problems[:SHOWN], *more]))
    return sources


def log_progress(what: object) -> Progress:
    """Return a progress that writes a line to the log now and then, none for what is short."""
    last = monotonic()

    def log(part: float, left: float) -> None:
        nonlocal last
        if monotonic() >= last + LINE_PERIOD:
            last = monotonic()
            logger.info('%s: %.0f %% loaded, %.0f s left', what, part * 100, left)
    return log


def _problems(shards: Shards, weights: Mapping[str, Tensor], named: list[tuple[str, str]],
              sources: Mapping[str, str]) -> Iterator[str]:
    missing = [name for name in weights if name not in sources]
    unexpected = {name: key for name, key in sources.items() if name not in weights}
    for name, key in named:
        if key != sources[name]:
            yield f'{key} and {sources[name]} are both {name} of the model'
        elif name not in weights:
            yield f'{key} is no tensor of the model{_nearest(name, missing or weights)}'
        elif list(shards.shapes[key]) != list(weights[name].shape):
            yield (f'{key} has shape {list(shards.shapes[key])}, the model takes '
                   f'{list(weights[name].shape)}')
        elif shards.dtypes[key] not in FLOATS:
            yield f'{key} holds {shards.dtypes[key]}, the model takes one of {", ".join(FLOATS)}'
    for name in missing:
        yield (f'{name} {list(weights[name].shape)} is missing'
               f'{_nearest(name, unexpected or sources, unexpected or sources)}')


def _nearest(name: str, names: Iterable[str], keys: Mapping[str, str] | None = None) -> str:
    close = get_close_matches(name, list(names), 1)
    return f'; nearest is {(keys or {}).get(close[0], close[0])!r}' if close else ''


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
