# SPDX-License-Identifier: Apache-2.0
"""
The folder that lerobot saves a policy in: config.json, and the steps before and after the model.

Says what a robot must bring, in its own names, and how its units become the policy's. Steps are
read by their names in policy_preprocessor.json and policy_postprocessor.json, with the tensors
that they name; one that is not known is refused. Knows no architecture.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from robion_ros.models.folder import CheckpointError, CONFIG, Fields, read_json, require, unfold
from robion_ros.models.processing import IDENTITY, Scaling, Span, Units

BEFORE, AFTER = 'policy_preprocessor.json', 'policy_postprocessor.json'
IMAGES, STATE, ACTION = 'observation.images.', 'observation.state', 'action'
EMPTY = 'empty_camera_'
"""Begins the names of cameras that a policy has a place for, but no robot has."""
MEND = ('lerobot writes it since 0.4; an older checkpoint is converted by its '
        'migrate_policy_normalization')
NEUTRAL = {'rename_observations_processor', 'to_batch_processor', 'device_processor',
           'tokenizer_processor', 'normalizer_processor', 'unnormalizer_processor',
           'relative_actions_processor', 'absolute_actions_processor'}
"""Steps of every policy."""
RANGES = {'MIN_MAX': ('min', 'max'), 'QUANTILES': ('q01', 'q99'), 'QUANTILE10': ('q10', 'q90')}


KINDS: Mapping[str, tuple[type[Any], type[Any] | None]] = {
    'rename_map': (dict, str), 'features': (dict, dict), 'norm_map': (dict, str),
    'eps': (float, None), 'normalize_observation_keys': (list, str),
    'exclude_joints': (list, None), 'action_names': (list, None),
    'embodiment_mapping': (dict, None), 'embodiment_tag': (str, None)}
"""What the configuration of a step holds where it is there, and what is in that."""


@dataclass(frozen=True)
class Step:
    """One step of a pipeline."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Policy:
    """What the folder holds beside the weights."""

    folder: Path
    fields: Fields
    """Of config.json."""
    before: tuple[Step, ...]
    after: tuple[Step, ...]

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, in the order of the policy's inputs."""
        names = (key.removeprefix(IMAGES).removeprefix('observation.')
                 for key, feature in self._features('input_features').items()
                 if feature.get('type') == 'VISUAL')
        return tuple(name for name in names if not name.startswith(EMPTY))

    @property
    def renamed(self) -> Mapping[str, str]:
        """Other names of cameras, as the robots of the training had them, and the policy's."""
        step = self.step('rename_observations_processor')
        names = step.config.get('rename_map', {}) if step else {}
        return {old.removeprefix(IMAGES): new.removeprefix(IMAGES) for old, new in names.items()}

    def size(self, key: str) -> int:
        """Return how many values a state or action has."""
        where = 'output_features' if key == ACTION else 'input_features'
        shape = self._features(where).get(key, {}).get('shape')
        if not (isinstance(shape, list) and len(shape) == 1 and type(shape[0]) is int
                and shape[0] > 0):
            raise CheckpointError(f'{self.fields.path}: {where}.{key}.shape is {shape!r}, must be '
                                  'a list of one number above 0')
        return int(shape[0])

    def step(self, name: str) -> Step | None:
        """Return a step of either pipeline."""
        return next((step for step in (*self.before, *self.after) if step.name == name), None)

    def units(self, key: str) -> Units:
        """Return how states become the policy's input, or its output actions of the robot."""
        step = self.step('unnormalizer_processor' if key == ACTION else 'normalizer_processor')
        if step is None:
            return IDENTITY
        kind, wanted = 'ACTION', step.config.get('normalize_observation_keys')
        if key != ACTION:
            feature = step.config.get('features', {}).get(key)
            if feature is None or (wanted is not None and key not in wanted):
                return IDENTITY
            kind = feature.get('type')
        mode = step.config.get('norm_map', {}).get(kind, 'IDENTITY')
        found = {name.rpartition('.')[2]: values for name, values in step.tensors.items()
                 if name.rpartition('.')[0] == key}
        if mode == 'IDENTITY' or not found:
            return IDENTITY
        try:
            return make_units(mode, found, float(step.config.get('eps', 1e-8)), self.size(key))
        except ValueError as error:
            raise CheckpointError(f'{self.folder}: {step.name}: {key}: {error}') from error

    def relative(self, size: int) -> np.ndarray | None:
        """Return, float32 [A], 1 for each value of an action that the state is added to."""
        step, back = (self.step(f'{name}_actions_processor') for name in ('relative', 'absolute'))
        if step is None or back is None or not back.config.get('enabled'):
            return None
        kept = [str(name).lower() for name in step.config.get('exclude_joints') or [] if name]
        names = [str(name).lower() for name in step.config.get('action_names') or []][:size]
        mask = np.ones(size, np.float32)
        for index, name in enumerate(names):
            mask[index] = not any(part in name for part in kept)
        return mask

    def _features(self, where: str) -> Mapping[str, Mapping[str, Any]]:
        found = self.fields.read(where, dict)
        try:
            return {key: unfold(found, key, dict) for key in found}
        except ValueError as error:
            raise CheckpointError(f'{self.fields.path}: {where}: {error}') from error


def read_policy(folder: Path, own: Collection[str] = ()) -> Policy:
    """Read what the folder holds beside the weights; own are the steps of the architecture."""
    fields = Fields(folder / CONFIG, read_json(folder))
    policy = Policy(folder, fields, _read_steps(folder, BEFORE), _read_steps(folder, AFTER))
    for step in (*policy.before, *policy.after):
        if step.name not in NEUTRAL and step.name not in own:
            raise CheckpointError(f'{folder}: the step {step.name!r} before or after the model is '
                                  'not known, so its actions would not be those of the training')
        if step.config.get('float_dtype') not in (None, 'float32'):
            raise CheckpointError(f'{folder}: {step.name} rounds inputs to '
                                  f'{step.config["float_dtype"]}; set float_dtype to null')
    scaled = policy.step('normalizer_processor')
    visual = scaled.config.get('norm_map', {}).get('VISUAL', 'IDENTITY') if scaled else 'IDENTITY'
    if visual != 'IDENTITY':
        raise CheckpointError(f'{folder}: pictures are scaled by {visual}, must be IDENTITY')
    return policy


def make_units(mode: str, found: Mapping[str, np.ndarray], epsilon: float, size: int) -> Units:
    """Return the units of a mode of lerobot's normalisation, in float32, from its statistics."""
    names = ('mean', 'std') if mode == 'MEAN_STD' else RANGES.get(mode)
    if names is None:
        raise ValueError(f'scaling by {mode} is not known')
    for name in names:
        if name not in found:
            raise ValueError(f'{mode} needs {name}, the statistics have {", ".join(found)}')
        if found[name].shape != (size,) or not np.isfinite(found[name]).all():
            raise ValueError(f'{name} has shape {list(found[name].shape)}, must be {size} finite '
                             'numbers')
    first, second = (found[name].astype(np.float32) for name in names)
    least = np.float32(epsilon)
    if mode == 'MEAN_STD':
        if (second < 0).any():
            raise ValueError('std is below 0')
        return Scaling(first, second, second + least)
    width = second - first
    return Span(first, np.where(width == 0, least, width))


def _read_steps(folder: Path, name: str) -> tuple[Step, ...]:
    path, values = folder / name, read_json(folder, name, MEND)
    steps = []
    try:
        for index, entry in enumerate(unfold(values, 'steps', list)):
            step = entry.get('registry_name') or str(entry.get('class', '')).rpartition('.')[2]
            file = entry.get('state_file')
            if file is not None and Path(file).name != file:
                raise ValueError(f'steps[{index}].state_file is {file!r}, must be a file beside '
                                 'it')
            tensors = load_file(require(folder, file)) if file else {}
            steps.append(Step(str(step), _check(unfold(entry, 'config', dict)), tensors))
    except (AttributeError, KeyError, OSError, TypeError, ValueError, SafetensorError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f'{path}: {error}') from error
    return tuple(steps)


def _check(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is there of a step's configuration; raise ValueError where it cannot be."""
    found = {key: value for key, value in config.items() if value is not None}
    for key, (kind, inner) in KINDS.items():
        if key in found:
            values = unfold(found, key, kind)
            inside = values.values() if kind is dict else values
            if inner and not all(type(value) is inner for value in inside):
                raise ValueError(f'{key} is {values!r:.80}, must hold only {inner.__name__}')
    return found
