# SPDX-License-Identifier: Apache-2.0
"""What the make_*.py of test/golden wrote: answers of references, and checkpoint folders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
import json
from pathlib import Path
import shutil

from safetensors import safe_open
from safetensors.torch import load_file, save_file
import torch

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import registry

FOLDER = Path(__file__).resolve().parents[1] / 'golden'
JOINTS = tuple(f'joint_{index}' for index in range(8))
ACTIONS = ('x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper')
NUMBERS = range(3)
"""Of the observations; the robot of the second has a camera less."""
EXACT = {'atol': 1e-5, 'rtol': 1e-5}
"""What one more rounding moves is about 1e-6."""


@dataclass(frozen=True)
class Golden:
    """A checkpoint, the robots that a reference was asked for with it, and what it gave."""

    name: str
    """Of the file, and of the checkpoint's folder."""
    architecture: str
    camera_names: tuple[str, ...]
    """Of the robots: not always in the order of the policy."""
    joints: tuple[str, ...] = JOINTS
    tokenizer: str = ''
    step_duration: float = 0.05
    prefix: str = ''
    """Of the reference's answers, in a file that has those of two."""
    checkpoint: Path | None = None
    """If it is not where its name says."""

    @property
    def folder(self) -> Path:
        return self.checkpoint or FOLDER / self.name

    @property
    def path(self) -> Path:
        return FOLDER / f'{self.name}.safetensors'

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        return load_file(self.path)

    def said(self, name: str) -> object:
        """Return what the file says beside its tensors."""
        with safe_open(self.path, 'pt') as file:
            return json.loads(file.metadata()[name])

    def __call__(self, number: int, name: str) -> torch.Tensor:
        """Return what the reference gave for an observation."""
        return self.tensors[f'{self.prefix}{number}.{name}']

    def seen(self, number: int, name: str) -> torch.Tensor | None:
        """Return what a robot saw."""
        names = (f'{number}.{kind}{name}' for kind in ('observation.images.', 'observation.', ''))
        return next((self.tensors[name] for name in names if name in self.tensors), None)

    def cameras(self, number: int) -> tuple[str, ...]:
        """Return the cameras that an observation has."""
        return tuple(name for name in self.camera_names if self.seen(number, name) is not None)

    def observation(self, number: int, cameras: Sequence[str] | None = None) -> Observation:
        names = self.cameras(number) if cameras is None else cameras
        images = tuple(self.seen(number, name).numpy() for name in names)
        return Observation(images, self.seen(number, 'state').numpy(),
                           self.said('prompts')[number], 0)

    def model(self, cameras: Sequence[str] | None = None, **changes: object) -> ModelConfig:
        """Return a model of a factory file for the robots of the observations."""
        names = self.camera_names if cameras is None else cameras
        values = {'cameras': dict.fromkeys(names, CameraConfig()), 'joints': self.joints,
                  'rate': 2.0, 'slo': 0.1, 'capacity': 8, 'actions': ACTIONS,
                  'step_duration': self.step_duration, 'checkpoint': str(self.folder),
                  'tokenizer': self.tokenizer and str(FOLDER / self.tokenizer)}
        return ModelConfig(self.architecture, **(values | changes))

    def load(self, cameras: Sequence[str] | None = None, **changes: object):
        return registry.load(self.model(cameras, **changes), 'cpu')

    def at(self, folder: Path) -> 'Golden':
        """Return the same with another checkpoint."""
        return replace(self, checkpoint=folder)


GR00T = Golden('gr00t', 'gr00t_n1_5', ('wrist', 'front'), step_duration=0.02,
               tokenizer='gr00t_tokenizer/vocab.json', prefix='isaac.')
GOLDEN = {
    'pi0': Golden('pi0', 'pi0', ('base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb'),
                  tokenizer='tokenizer.json'),
    'pi05': Golden('pi05', 'pi05', ('front', 'wrist'), tokenizer='tokenizer.json'),
    'smolvla': Golden('smolvla', 'smolvla', ('image', 'wrist', 'side'), joints=JOINTS[:6]),
    'xiaomi': Golden('xiaomi', 'xiaomi_robotics_0', ('base', 'wrist_left')),
    'gr00t': GR00T,
    'gr00t_lerobot': replace(GR00T, prefix='lerobot.'),
}
"""That of gr00t_lerobot has first to be written, by lerobot_folder."""


@dataclass(frozen=True)
class Case:
    """Models of a checkpoint for the robots of each observation."""

    golden: Golden

    @cached_property
    def models(self) -> list:
        cameras = [self.golden.cameras(number) for number in NUMBERS]
        loaded = {names: self.golden.load(names) for names in cameras}
        return [loaded[names] for names in cameras]

    def inputs(self, number: int) -> dict[str, torch.Tensor]:
        """Return an observation as its model sees it, as a batch of one."""
        return batched(self.models[number], self.golden.observation(number))


def batched(model, observation: Observation) -> dict[str, torch.Tensor]:
    return {name: tensor[None] for name, tensor in model.preprocess(observation).items()}


def openpi_folder(folder: Path, kind: str, **fields: object) -> Path:
    """Write a golden checkpoint as openpi's conversion does."""
    (folder / 'assets' / 'robot').mkdir(parents=True)
    shutil.copy(FOLDER / 'openpi' / 'norm_stats.json', folder / 'assets' / 'robot')
    shutil.copy(FOLDER / 'openpi' / 'tokenizer.model', folder)
    weights = {key.removeprefix('model.'): value for key, value in read_weights(
        FOLDER / kind).items()}
    save_file(weights, folder / 'model.safetensors')
    config = {'action_dim': 32, 'action_horizon': 6 if kind == 'pi0' else 5,
              'paligemma_variant': 'gemma_2b', 'action_expert_variant': 'gemma_300m',
              'precision': 'bfloat16', **fields}
    (folder / 'config.json').write_text(json.dumps(config))
    return folder


def lerobot_folder(folder: Path) -> Path:
    """Write GR00T's network as lerobot saves it, in one file."""
    shutil.copytree(FOLDER / 'gr00t_lerobot', folder)
    weights = {f'_groot_model.{key}': value for key, value in read_weights(
        FOLDER / 'gr00t').items()}
    # Of two names of one tensor it keeps one.
    del weights['_groot_model.backbone.eagle_model.language_model.model.embed_tokens.weight']
    save_file(weights, folder / 'model.safetensors')
    edit_json(folder / 'config.json',
              lambda values: values.update(base_model_path=str(FOLDER / 'gr00t')))
    return folder


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of all the files of a checkpoint."""
    return {key: value for path in sorted(folder.glob('model*.safetensors'))
            for key, value in load_file(path).items()}


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint, each in its file; new ones come into the last."""
    weights = read_weights(folder)
    change(weights)
    *paths, last = sorted(folder.glob('model*.safetensors'))
    for path in paths:
        save_file({key: weights.pop(key) for key in load_file(path) if key in weights}, path)
    save_file(weights, last)


def edit_json(path: Path, change: Callable[[dict], object]) -> None:
    """Change what a JSON file holds."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """Return what changes the tensors of a folder."""
    return lambda folder: edit_weights(folder, change)


def config(*keys: str, file: str = 'config.json', **changes: object) -> Callable[[Path], None]:
    """Return what changes an object, which stands at some keys, of a folder's JSON file."""
    def change(values: dict) -> None:
        for key in keys:
            values = values[key]
        values.update(changes)
    return lambda folder: edit_json(folder / file, change)
