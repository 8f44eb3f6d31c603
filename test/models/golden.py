# SPDX-License-Identifier: Apache-2.0
"""What make_pi0.py, make_openpi.py and make_smolvla.py wrote, and folders made of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
import json
from pathlib import Path
import shutil

from safetensors import safe_open
from safetensors.torch import load_file, save_file
import torch

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import Observation

FOLDER = Path(__file__).resolve().parents[1] / 'golden'
CAMERAS = {'pi0': ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb'),
           'pi05': ('front', 'wrist'), 'smolvla': ('image', 'wrist', 'side')}
JOINTS = tuple(f'joint_{index}' for index in range(8))
ACTIONS = ('x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper')


@dataclass(frozen=True)
class Golden:
    """What the reference gave for a model."""

    kind: str

    @property
    def checkpoint(self) -> Path:
        return FOLDER / self.kind

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        return load_file(FOLDER / f'{self.kind}.safetensors')

    @cached_property
    def prompts(self) -> list[str]:
        with safe_open(FOLDER / f'{self.kind}.safetensors', 'pt') as file:
            return json.loads(file.metadata()['prompts'])

    def __call__(self, number: int, name: str) -> torch.Tensor:
        return self.tensors[f'{number}.{name}']

    def picture(self, number: int, camera: str) -> torch.Tensor | None:
        names = (f'{number}.observation.{kind}{camera}' for kind in ('images.', ''))
        return next((self.tensors[name] for name in names if name in self.tensors), None)

    def cameras(self, number: int) -> tuple[str, ...]:
        """Return the cameras that an observation has."""
        return tuple(camera for camera in CAMERAS[self.kind]
                     if self.picture(number, camera) is not None)

    def observation(self, number: int, cameras: Sequence[str] | None = None) -> Observation:
        names = self.cameras(number) if cameras is None else cameras
        images = tuple(self.picture(number, name).numpy() for name in names)
        return Observation(images, self(number, 'observation.state').numpy(),
                           self.prompts[number], 0)


def model_of(kind: str, cameras: Sequence[str], **changes: object) -> ModelConfig:
    """Return a model of a factory file for the robots of the golden observations."""
    values = {'cameras': dict.fromkeys(cameras, CameraConfig()), 'joints': JOINTS, 'rate': 2.0,
              'slo': 0.1, 'capacity': 8, 'actions': ACTIONS, 'step_duration': 0.05,
              'checkpoint': str(FOLDER / kind), 'tokenizer': str(FOLDER / 'tokenizer.json')}
    return ModelConfig(kind, **(values | changes))


def openpi_folder(folder: Path, kind: str, **fields: object) -> Path:
    """Write a golden checkpoint as openpi's conversion does."""
    (folder / 'assets' / 'robot').mkdir(parents=True)
    shutil.copy(FOLDER / 'openpi' / 'norm_stats.json', folder / 'assets' / 'robot')
    shutil.copy(FOLDER / 'openpi' / 'tokenizer.model', folder)
    weights = {}
    for path in (FOLDER / kind).glob('model*.safetensors'):
        weights |= {key.removeprefix('model.'): value for key, value in load_file(path).items()}
    save_file(weights, folder / 'model.safetensors')
    config = {'action_dim': 32, 'action_horizon': 6 if kind == 'pi0' else 5,
              'paligemma_variant': 'gemma_2b', 'action_expert_variant': 'gemma_300m',
              'precision': 'bfloat16', **fields}
    (folder / 'config.json').write_text(json.dumps(config))
    return folder


def edit_json(path: Path, change: Callable[[dict], object]) -> None:
    """Change what a JSON file holds."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
