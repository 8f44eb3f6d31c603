# SPDX-License-Identifier: Apache-2.0
"""
The weights of a checkpoint folder, also where it holds a LoRA adapter that lies on another one.

lerobot saves so what was fine-tuned with --peft: adapter_model.safetensors and adapter_config.json
of PEFT, which names the base checkpoint. Its changes are added to the base's tensors as they are
read, as PEFT's merge_and_unload does. Knows no model.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
import math
from os.path import normpath
from pathlib import Path
import re
from typing import Any

from torch import Tensor

from robion_ros.models.folder import CheckpointError, read_json
from robion_ros.models.hub import locate
from robion_ros.models.shards import ADAPTER, is_adapter, open_files, open_shards, Shards

CONFIG = 'adapter_config.json'
BASE = 'base_model_name_or_path'
PREFIX = 'base_model.model.'
"""Of every name in an adapter: PEFT's two wrappers around the policy."""
LOW, HIGH = '.lora_A.weight', '.lora_B.weight'
"""Of a change of a matrix: its factors [r, in] and [out, r]."""
PLAIN = True, False, 'gaussian', 'orthogonal', 'eva'
"""Values of init_lora_weights that leave the base as it is."""
OTHERS = ('use_dora', 'use_qalora', 'use_bdlora', 'layer_replication', 'alora_invocation_tokens',
          'arrow_config', 'kasa_config', 'monteclora_config', 'velora_config', 'target_parameters',
          'trainable_token_indices', 'fan_in_fan_out')
"""What changes more than a product of two factors does."""
MERGE = 'merge it into its base, with merge_and_unload of peft, and save that'


@dataclass(frozen=True)
class Factors:
    """A change of a matrix: scale * high @ low."""

    low: str
    high: str
    scale: float


class Merged(Shards):
    """The tensors of a base with the changes of an adapter; float32 where they were changed."""

    def __init__(self, base: Shards, adapter: Shards,
                 changes: Mapping[str, Factors | str]) -> None:
        """Take, by the base's keys, the factors of a change or what stands in the adapter."""
        self.place, self.keys = base.place, base.keys
        self.shapes, self.dtypes = base.shapes, base.dtypes
        self._base, self._adapter, self._changes = base, adapter, changes

    def tensor(self, key: str) -> Tensor:
        """Return a tensor on the CPU."""
        change = self._changes.get(key)
        if isinstance(change, str):
            return self._adapter.tensor(change)
        tensor = self._base.tensor(key)
        if change is None:
            return tensor
        low, high = (self._adapter.tensor(name).float() for name in (change.low, change.high))
        return tensor.float().addmm(high, low, alpha=change.scale)


@contextmanager
def open_weights(folder: Path) -> Iterator[Shards]:
    """Open the weights of a checkpoint folder, an adapter's together with its base's."""
    if not is_adapter(folder):
        with open_shards(folder) as shards:
            yield shards
        return
    config = read_config(folder)
    with (open_shards(find_base(folder, config)) as base,
          open_files(folder / ADAPTER, [folder / ADAPTER]) as adapter):
        yield Merged(base, adapter, dict(find_changes(base, adapter, config)))


def describe_adapter(folder: Path) -> tuple[str, ...]:
    """Return a line about a folder's adapter, if it holds one."""
    if not is_adapter(folder):
        return ()
    return f'an adapter (LoRA) on {find_base(folder, read_config(folder))}',


def read_config(folder: Path) -> Mapping[str, Any]:
    """Return how the adapter is to be applied; raise CheckpointError where that is not known."""
    path, config = folder / CONFIG, read_json(folder, CONFIG)
    odd = [f'{key} {config[key]!r}' for key in OTHERS if config.get(key)]
    if (kind := config.get('peft_type')) != 'LORA':
        odd.append(f'peft_type {kind!r}')
    if (start := config.get('init_lora_weights', True)) not in PLAIN:
        odd.append(f'init_lora_weights {start!r}')
    if odd:
        raise CheckpointError(f'{path}: {", ".join(odd)}: such an adapter is not read; {MERGE}')
    return config


def find_base(folder: Path, config: Mapping[str, Any]) -> Path:
    """Return the folder of the checkpoint that an adapter lies on."""
    place, name = f'{folder / CONFIG}: {BASE}', config.get(BASE)
    mend = (f'; write there the folder of the checkpoint that it was trained on, absolute or from '
            f'{folder} on, or owner/name of the Hugging Face hub')
    if not isinstance(name, str) or not name:
        raise CheckpointError(f'{place} is {name!r}{mend}')
    if (folder / name).is_dir():  # Absolute ones, too.
        return Path(normpath(folder / name))
    if config.get('revision'):
        raise CheckpointError(f'{place} is {name!r} at revision {config["revision"]!r}: download '
                              f'that{mend}')
    try:
        found = locate(name)
    except CheckpointError as error:
        raise CheckpointError(f'{place}: {error}{mend}') from error
    if not found.is_dir():
        raise CheckpointError(f'{place}: {name} does not exist here{mend}')
    return found


def find_changes(base: Shards, adapter: Shards,
                 config: Mapping[str, Any]) -> Iterator[tuple[str, Factors | str]]:
    """Return what an adapter changes, by the base's keys; raise CheckpointError if it can't be."""
    for key in adapter.keys:
        name = key.removeprefix(PREFIX)
        if name.endswith(HIGH):
            if key.removesuffix(HIGH) + LOW not in adapter.keys:
                raise CheckpointError(f'{adapter.place}: {key} stands there without {LOW[1:]}')
        elif name.endswith(LOW):
            module, high = name.removesuffix(LOW), key.removesuffix(LOW) + HIGH
            if high not in adapter.keys:
                raise CheckpointError(f'{adapter.place}: {key} stands there without {HIGH[1:]}')
            found = _key_of(f'{module}.weight', key, base, adapter)
            (rank, *inward), (*outward, inner) = adapter.shapes[key], adapter.shapes[high]
            if rank != inner or not rank:
                raise CheckpointError(f'{adapter.place}: {key} has rank {rank}, {high} {inner}')
            _check(found, base, key, adapter, (*outward, *inward))
            yield found, Factors(key, high, find_scale(module, rank, config))
        elif 'lora_' in name:
            raise CheckpointError(f'{adapter.place}: {key} is of a kind of change that is not '
                                  f'read; {MERGE}')
        else:  # Trained whole: modules_to_save, or a bias.
            found = _key_of(name, key, base, adapter)
            _check(found, base, key, adapter, adapter.shapes[key])
            yield found, key


def find_scale(module: str, rank: int, config: Mapping[str, Any]) -> float:
    """Return the factor of a change: alpha / r, or alpha / sqrt(r) where it is stabilised."""
    alpha, patterns = config.get('lora_alpha', 8), config.get('alpha_pattern') or {}
    try:
        alpha = next((value for pattern, value in patterns.items()
                      if re.fullmatch(rf'(.*\.)?({pattern})', module)), alpha)
        scale = float(alpha) / (math.sqrt(rank) if config.get('use_rslora') else rank)
    except (AttributeError, TypeError, ValueError, OverflowError, re.error) as error:
        raise CheckpointError(f'{CONFIG}: lora_alpha {alpha!r} and alpha_pattern {patterns!r} '
                              f'give no scale for {module}: {error}') from error
    if not math.isfinite(scale):
        raise CheckpointError(f'{CONFIG}: lora_alpha of {module} is {alpha!r}, must be finite')
    return scale


def _key_of(name: str, key: str, base: Shards, adapter: Shards) -> str:
    # Published bases are saved with and without the policy around the model.
    for found in (name, name.removeprefix('model.'), f'model.{name}'):
        if found in base.shapes:
            return found
    raise CheckpointError(f'{adapter.place}: {key} changes no tensor of {base.place}: is that the '
                          f'checkpoint that it was trained on? {CONFIG} names it as {BASE}')


def _check(name: str, base: Shards, key: str, adapter: Shards, shape: tuple[int, ...]) -> None:
    if shape != base.shapes[name]:
        raise CheckpointError(f'{adapter.place}: {key} changes a tensor of shape {list(shape)}, '
                              f'{name} of {base.place} has {list(base.shapes[name])}')
