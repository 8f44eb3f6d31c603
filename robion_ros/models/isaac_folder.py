# SPDX-License-Identifier: Apache-2.0
"""
The folder that Isaac-GR00T saves: config.json and experiment_cfg/metadata.json.

Says what a robot must bring and how its units become the policy's. Which parts of the data a
policy was trained on, and how they were scaled, Isaac-GR00T keeps in its code; config.json may
name it with embodiment_tag and data_config. Knows no architecture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robion_ros.config import nearest
from robion_ros.models.folder import (
    CheckpointError,
    CONFIG,
    parse_json,
    read_json,
    require,
    unfold,
)
from robion_ros.models.isaac_configs import (
    DATA_CONFIGS,
    DataConfig,
    EMBODIMENTS,
    make_data_config,
    scaled,
)
from robion_ros.models.isaac_units import make_change, MODES, Parts, Rotation
from robion_ros.models.processing import Change

METADATA = 'experiment_cfg/metadata.json'
ROTATIONS = 'quaternion', 'axis_angle'
GUESSED = ('which parts of the data, in which order and how scaled, is code of Isaac-GR00T: taken '
           'are all of {}, in its order, scaled to their ranges; write data_config into '
           f'{CONFIG} where that is not so')


@dataclass(frozen=True)
class Embodiment:
    """A kind of robots that a policy moves."""

    place: Path
    """Of the metadata."""
    tag: str
    number: int
    """Of its layers."""
    data: DataConfig
    metadata: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, in the order of the policy's inputs."""
        return tuple(self.data.video_keys)

    @property
    def step_duration(self) -> float:
        """Between two steps of a chunk, as of the recordings, s."""
        found = self._part('video', self.cameras[0])
        try:
            frames = unfold(found, 'fps', float)
            if not 0.001 <= frames <= 10_000:
                raise ValueError(f'fps is {frames}, must be from 0.001 to 10000')
            return 1 / frames
        except ValueError as error:
            raise CheckpointError(f'{self.place}: video {self.cameras[0]}: {error}') from error

    def sizes(self, kind: str) -> tuple[int, ...]:
        """Return how many values each part of a 'state' or 'action' has."""
        found = []
        for key in self._keys(kind):
            shape = self._part(kind, key).get('shape')
            if not (isinstance(shape, list) and len(shape) == 1 and type(shape[0]) is int
                    and shape[0] > 0):
                raise CheckpointError(f'{self.place}: {kind} {key}: shape is {shape!r}, must be a '
                                      'list of one number above 0')
            found.append(shape[0])
        return tuple(found)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return a name for each value."""
        return tuple(key if size == 1 else f'{key}_{index}'
                     for key, size in zip(self._keys(kind), self.sizes(kind), strict=True)
                     for index in range(1, size + 1))

    def change(self, kind: str) -> Parts:
        """Return how states become the policy's input, or its output actions of the robot."""
        sizes = self.sizes(kind)
        return Parts(sizes, [self._change(kind, key, size)
                             for key, size in zip(self._keys(kind), sizes, strict=True)])

    def _change(self, kind: str, key: str, size: int) -> Change:
        data, where = self.data, f'{self.place}: {kind} {key}'
        modes, targets = {
            'state': (data.state_normalization_modes, data.state_target_rotations),
            'action': (data.action_normalization_modes, data.action_target_rotations)}[kind]
        mode, target = modes.get(key, ''), targets.get(key)
        rotation = self._part(kind, key).get('rotation_type')
        if target and rotation != target:
            known = rotation in ROTATIONS or str(rotation).startswith('euler_angles_')
            if kind == 'action' or target != 'rotation_6d' or not known:
                raise CheckpointError(f'{where}: a change from {rotation} to {target} is not '
                                      'served')
            return Rotation(str(rotation))  # Its range is -1 to 1 as it is.
        if mode not in MODES or (kind == 'action' and mode == 'sin_cos'):
            raise CheckpointError(f'{where}: scaling by {mode!r} is not known; '
                                  f'{nearest(mode, filter(None, MODES))}')
        found = {}
        for name in MODES[mode]:
            try:
                statistics = unfold(unfold(self.metadata['statistics'], kind, dict), key, dict)
                values = np.asarray(statistics.get(name, ()), np.float32)
            except (OverflowError, TypeError, ValueError) as error:
                raise CheckpointError(f'{where}: {name} of its statistics: {error}') from error
            if values.shape != (size,) or not np.isfinite(values).all():
                raise CheckpointError(f'{where}: {name} of its statistics must be {size} finite '
                                      'numbers')
            found[name] = values
        return make_change(mode, found)

    def _keys(self, kind: str) -> Sequence[str]:
        return self.data.state_keys if kind == 'state' else self.data.action_keys

    def _part(self, modality: str, key: str) -> Mapping[str, Any]:
        parts = self.metadata['modalities'][modality]
        if not isinstance(parts.get(key), dict):
            raise CheckpointError(f'{self.place}: {self.tag} has no {modality} {key!r}; '
                                  f'{nearest(key, parts)}')
        part: Mapping[str, Any] = parts[key]
        return part


def read_embodiment(folder: Path) -> Embodiment:
    """Read which robots a folder's policy moves."""
    fields, path = read_json(folder), folder / METADATA
    if not path.is_file():
        require(folder, METADATA, 'Isaac-GR00T saves it beside the weights')
    known = parse_json(path)
    try:
        tag = choose_tag(fields, known)
        metadata = unfold(known, tag, dict)
        modalities = unfold(metadata, 'modalities', dict)
        unfold(metadata, 'statistics', dict)
        for kind in ('video', 'state', 'action'):
            for key in unfold(modalities, kind, dict):
                unfold(modalities[kind], key, dict)
            if not modalities[kind]:
                raise ValueError(f'{kind} is empty')
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(f'{path}: {error}') from error
    number = fields.get('embodiment_id', EMBODIMENTS.get(tag))
    if type(number) is not int:
        raise CheckpointError(f'{path}: the layers of {tag!r} are not known, it is none of '
                              f'{", ".join(EMBODIMENTS)}: write their number as embodiment_id '
                              f'into {CONFIG}')
    data, notes = choose_data(folder, fields, modalities)
    return Embodiment(path, tag, number, data, metadata, notes)


def choose_tag(fields: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the kind of robots that is served; raise ValueError where that is not clear."""
    tag = fields.get('embodiment_tag')
    if tag is None and len(known) == 1:
        return next(iter(known))
    if tag not in known:
        problem = f'has {", ".join(known) or "no embodiment"}'
        if tag is not None:
            raise ValueError(f'{problem}, embodiment_tag of {CONFIG} is {tag!r}')
        raise ValueError(f'{problem}: write one of them as embodiment_tag into {CONFIG}')
    return str(tag)


def choose_data(folder: Path, fields: Mapping[str, Any],
                modalities: Mapping[str, Any]) -> tuple[DataConfig, tuple[str, ...]]:
    """Return the parts of the data that a policy was trained on, and what is to be said of it."""
    chosen = fields.get('data_config')
    if chosen is None:
        video, state, action = (list(modalities[kind]) for kind in ('video', 'state', 'action'))
        special = [key for kind in ('state', 'action') for key, part in modalities[kind].items()
                   if part.get('rotation_type') or not part.get('continuous', True)]
        if special:
            raise CheckpointError(
                f'{folder / METADATA}: how {", ".join(special)} were scaled is code of '
                f'Isaac-GR00T: write into {CONFIG}, as data_config, one of '
                f'{", ".join(DATA_CONFIGS)} or what its class there holds')
        return scaled(video, state, action), (GUESSED.format(METADATA),)
    if isinstance(chosen, str):
        if chosen not in DATA_CONFIGS:
            raise CheckpointError(f'{folder / CONFIG}: data_config {chosen!r} is not known; '
                                  f'{nearest(chosen, DATA_CONFIGS)}')
        return DATA_CONFIGS[chosen], ()
    try:
        return make_data_config(dict(chosen)), ()
    except (TypeError, ValueError) as error:
        raise CheckpointError(f'{folder / CONFIG}: data_config: {error}') from error
