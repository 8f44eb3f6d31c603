# SPDX-License-Identifier: Apache-2.0
"""
What Isaac-GR00T keeps in its code of the robots that it knows: parts, in order, and scaling.

A checkpoint does not say which of these it was trained with; config.json may name one, or hold
one of its own with the same fields. Knows neither statistics nor folders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

EMBODIMENTS: Mapping[str, int] = {
    'new_embodiment': 31, 'oxe_droid': 17, 'agibot_genie1': 26, 'gr1': 24, 'so100': 2,
    'unitree_g1': 3}
"""Which layers of a checkpoint are those of a kind of robots."""


@dataclass(frozen=True)
class DataConfig:
    """One of them; names of parts come without what they are parts of."""

    video_keys: Sequence[str]
    state_keys: Sequence[str]
    action_keys: Sequence[str]
    state_normalization_modes: Mapping[str, str] = field(default_factory=dict)
    """Of a part that stands in none: not scaled. sin_cos is one here."""
    state_target_rotations: Mapping[str, str] = field(default_factory=dict)
    action_normalization_modes: Mapping[str, str] = field(default_factory=dict)
    action_target_rotations: Mapping[str, str] = field(default_factory=dict)


def scaled(video: Sequence[str], state: Sequence[str], action: Sequence[str],
           mode: str = 'min_max') -> DataConfig:
    """Return the usual one: all is scaled to its range, and states by mode."""
    return DataConfig(video, state, action, dict.fromkeys(state, mode),
                      action_normalization_modes=dict.fromkeys(action, 'min_max'))


def panda(video: Sequence[str], hand: str, close: str, mode: str) -> DataConfig:
    """Return that of two arms with grippers or hands."""
    sides = 'right', 'left'
    state, action = (tuple(f'{side}_{part}' for side in sides for part in parts) for parts in (
        ('arm_eef_pos', 'arm_eef_quat', hand), ('arm_eef_pos', 'arm_eef_rot', close)))
    return DataConfig(
        video, state, action,
        {key: 'min_max' for key in state if not key.endswith('quat')},
        {key: 'rotation_6d' for key in state if key.endswith('quat')},
        {key: mode for key in action if key.endswith(close)})


ARMS = 'left_arm', 'right_arm', 'left_hand', 'right_hand'
AGIBOT = ('left_arm_joint_position', 'right_arm_joint_position', 'left_effector_position',
          'right_effector_position', 'head_position', 'waist_position')
SINGLE_STATE = ('end_effector_position_relative', 'end_effector_rotation_relative',
                'gripper_qpos', 'base_position', 'base_rotation')
SINGLE_ACTION = ('end_effector_position', 'end_effector_rotation', 'gripper_close',
                 'base_motion', 'control_mode')
SINGLE_ROTATIONS = 'end_effector_rotation_relative', 'base_rotation'
SWITCHES = 'gripper_close', 'control_mode'
DATA_CONFIGS: Mapping[str, DataConfig] = {
    'fourier_gr1_arms_waist': scaled(('ego_view',), (*ARMS, 'waist'), (*ARMS, 'waist'), 'sin_cos'),
    'fourier_gr1_arms_only': scaled(('ego_view',), ARMS, ARMS, 'sin_cos'),
    'fourier_gr1_full_upper_body': scaled(('front_view',), (*ARMS, 'waist', 'neck'),
                                          (*ARMS, 'waist', 'neck')),
    'bimanual_panda_gripper': panda(('right_wrist_view', 'left_wrist_view', 'front_view'),
                                    'gripper_qpos', 'gripper_close', 'binary'),
    'bimanual_panda_hand': panda(('right_wrist_view', 'left_wrist_view', 'ego_view'), 'hand',
                                 'hand', 'min_max'),
    'single_panda_gripper': DataConfig(
        ('left_view', 'right_view', 'wrist_view'), SINGLE_STATE, SINGLE_ACTION,
        dict.fromkeys(SINGLE_STATE, 'min_max'), dict.fromkeys(SINGLE_ROTATIONS, 'rotation_6d'),
        {key: 'binary' if key in SWITCHES else 'min_max' for key in SINGLE_ACTION}),
    'so100': scaled(('webcam',), ('single_arm', 'gripper'), ('single_arm', 'gripper')),
    'so100_dualcam': scaled(('front', 'wrist'), ('single_arm', 'gripper'),
                            ('single_arm', 'gripper')),
    'unitree_g1': scaled(('rs_view',), ARMS, ARMS),
    'unitree_g1_full_body': scaled(('rs_view',), ('left_leg', 'right_leg', 'waist', *ARMS), ARMS),
    'oxe_droid': DataConfig(
        ('exterior_image_1', 'exterior_image_2', 'wrist_image'),
        ('eef_position', 'eef_rotation', 'gripper_position'),
        ('eef_position_delta', 'eef_rotation_delta', 'gripper_position'),
        {'eef_position': 'min_max', 'gripper_position': 'min_max'},
        {'eef_rotation': 'rotation_6d'}, {'gripper_position': 'binary'},
        {'eef_rotation_delta': 'axis_angle'}),
    'agibot_genie1': scaled(('top_head', 'hand_left', 'hand_right'), AGIBOT,
                            (*AGIBOT, 'robot_velocity')),
}


def make_data_config(values: Mapping[str, Any]) -> DataConfig:
    """Return one that is written out; raise ValueError where it is not one."""
    kinds = {entry.name: entry for entry in fields(DataConfig)}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f'{name} is not one of {", ".join(kinds)}')
        prefix = f'{name.partition("_")[0]}.'
        if name.endswith('_keys'):
            texts = value if isinstance(value, list) else [None]
        else:
            texts = [*value, *value.values()] if isinstance(value, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f'{name} is {value!r:.80}, must be a '
                             f'{"list" if name.endswith("_keys") else "mapping"} of names')
        found[name] = ({key.removeprefix(prefix): mode for key, mode in value.items()}
                       if isinstance(value, dict) else
                       tuple(key.removeprefix(prefix) for key in value))
    for name in ('video_keys', 'state_keys', 'action_keys'):
        if not found.get(name):
            raise ValueError(f'{name} is missing or empty')
    return DataConfig(**found)
