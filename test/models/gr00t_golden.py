# SPDX-License-Identifier: Apache-2.0
"""What make_gr00t.py wrote, and checkpoint folders made of it."""

from functools import cache
import json
from pathlib import Path
import shutil

from safetensors import safe_open
from safetensors.torch import load_file, save_file
import torch

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import Observation

from .golden import edit_json, FOLDER

PATH = FOLDER / 'gr00t.safetensors'
TOKENIZER = FOLDER / 'gr00t_tokenizer' / 'vocab.json'
CAMERAS = 'wrist', 'front'
"""Of the robots, in another order than that of the policy."""
JOINTS = tuple(f'joint_{index}' for index in range(8))
ACTIONS = ('x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper')
STATISTICS = 'policy_preprocessor_step_2_groot_pack_inputs_v3.safetensors'


@cache
def tensors() -> dict[str, torch.Tensor]:
    return load_file(PATH)


@cache
def said(name: str) -> object:
    """Return what the file says beside its tensors."""
    with safe_open(PATH, 'pt') as file:
        return json.loads(file.metadata()[name])


def cameras(number: int) -> tuple[str, ...]:
    """Return the cameras that an observation has."""
    return tuple(camera for camera in CAMERAS if f'{number}.{camera}' in tensors())


def observation(number: int, names: tuple[str, ...] | None = None) -> Observation:
    images = tuple(tensors()[f'{number}.{name}'].numpy() for name in names or cameras(number))
    return Observation(images, tensors()[f'{number}.state'].numpy(), said('prompts')[number], 0)


def isaac_folder(folder: Path) -> Path:
    return shutil.copytree(FOLDER / 'gr00t', folder)


def lerobot_folder(folder: Path) -> Path:
    """Write the same network as lerobot saves it, in one file."""
    shutil.copytree(FOLDER / 'gr00t_lerobot', folder)
    weights = {}
    for path in (FOLDER / 'gr00t').glob('model*.safetensors'):
        weights |= {f'_groot_model.{key}': value for key, value in load_file(path).items()}
    # Of two names of one tensor it keeps one.
    del weights['_groot_model.backbone.eagle_model.language_model.model.embed_tokens.weight']
    save_file(weights, folder / 'model.safetensors')
    edit_json(folder / 'config.json',
              lambda values: values.update(base_model_path=str(FOLDER / 'gr00t')))
    return folder


def model_of(folder: Path, names: tuple[str, ...] = CAMERAS, **changes: object) -> ModelConfig:
    """Return a model of a factory file for the robots of the golden observations."""
    values = {'cameras': dict.fromkeys(names, CameraConfig()), 'joints': JOINTS, 'rate': 2.0,
              'slo': 0.1, 'capacity': 8, 'actions': ACTIONS, 'step_duration': 0.02,
              'checkpoint': str(folder), 'tokenizer': str(TOKENIZER)}
    return ModelConfig('gr00t_n1_5', **(values | changes))
