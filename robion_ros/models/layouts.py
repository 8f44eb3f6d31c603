# SPDX-License-Identifier: Apache-2.0
"""
Which architecture a checkpoint folder is of, and whose layout it has: the one table of both.

Knows no more of an architecture than what its checkpoints are told by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robion_ros.config import nearest
from robion_ros.models.adapter import open_weights
from robion_ros.models.folder import CheckpointError, CONFIG, read_json, require

Layout = Literal['robion_ros', 'lerobot', 'openpi', 'mibot', 'Isaac-GR00T']


@dataclass(frozen=True)
class Trait:
    """What tells one architecture in one layout from all others."""

    architecture: str
    layout: Layout
    field: str = ''
    """Of config.json, which must hold value."""
    value: str = ''
    tensor: str = ''
    """Where there is no field: a tensor's name."""


TRAITS: Sequence[Trait] = (
    Trait('tiny', 'robion_ros', 'architecture', 'tiny'),
    Trait('pi0', 'lerobot', 'type', 'pi0'),
    Trait('pi05', 'lerobot', 'type', 'pi05'),
    Trait('smolvla', 'lerobot', 'type', 'smolvla'),
    Trait('xiaomi_robotics_0', 'mibot', 'model_type', 'mibot'),
    Trait('gr00t_n1_5', 'lerobot', 'type', 'groot'),
    Trait('gr00t_n1_5', 'Isaac-GR00T', 'model_type', 'gr00t_n1_5'),
    Trait('pi0', 'openpi', tensor='action_time_mlp_in.weight'),
    Trait('pi05', 'openpi', tensor='time_mlp_in.weight'),
)
"""The first that fits counts."""


def detect(folder: Path) -> Trait:
    """Return what a folder is; raise CheckpointError where nothing fits."""
    fields: dict[str, Any] = {}
    if (folder / CONFIG).is_file() or not (folder / 'assets').is_dir():
        fields = read_json(folder)
    named = [trait for trait in TRAITS if trait.field and trait.field in fields]
    for trait in named:
        if fields[trait.field] == trait.value:
            return trait
    if named:
        field, found = named[0].field, fields[named[0].field]
        known = [trait.value for trait in named]
        raise CheckpointError(f'{folder / CONFIG}: {field} {found!r} is of no architecture that '
                              f'is served; {nearest(str(found), known)}')
    with open_weights(folder) as shards:
        for trait in TRAITS:
            if trait.tensor and trait.tensor in shards.keys:
                return trait
    require(folder, CONFIG)
    tensors = ', '.join(trait.tensor for trait in TRAITS if trait.tensor)
    fields_known = ', '.join(sorted({trait.field for trait in TRAITS if trait.field}))
    raise CheckpointError(f'checkpoint {folder} is of no architecture that is served: {CONFIG} '
                          f'has none of {fields_known}, and there is none of the tensors '
                          f'{tensors}')


def check_architecture(trait: Trait, architecture: str, folder: Path) -> None:
    """Raise CheckpointError unless the folder is of the architecture of the factory file."""
    if trait.architecture != architecture:
        raise CheckpointError(f'checkpoint {folder} is a {trait.architecture}, the factory file '
                              f'says architecture: {architecture}')
