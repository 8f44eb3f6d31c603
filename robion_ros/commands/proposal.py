# SPDX-License-Identifier: Apache-2.0
"""
The model's part of a factory file, proposed for a checkpoint.

What only the factory knows stands there as an example, with a comment. Knows no files.
"""

from collections.abc import Iterable
from pathlib import Path

from robion_ros.config import CameraConfig, MAX_CAMERA, ModelConfig, NAME, propose_name, ROBOT
from robion_ros.models.description import Description

EXAMPLE_DURATION = 1 / 30
RATE, SLO = 2.0, 0.2


def propose_model(described: Description, checkpoint: str, tokenizer: str) -> ModelConfig:
    """Return a model of robots as the checkpoint wants them."""
    names = described.cameras or tuple(f'camera_{index}'
                                       for index in range(1, described.camera_count + 1))
    cameras = {}
    for name in names:
        here = propose_name(name, ROBOT, 'camera')[:MAX_CAMERA]
        cameras[here] = CameraConfig(input='' if here == name else name)
    joints = numbered('joint', described.state_size)
    actions = described.action_names or (
        joints if described.action_size == described.state_size
        else numbered('action', described.action_size))
    return ModelConfig(
        described.architecture, cameras, joints, RATE, SLO, checkpoint=checkpoint,
        tokenizer=tokenizer, step_duration=described.step_duration or EXAMPLE_DURATION,
        actions=() if actions == joints else actions)


def propose(described: Description, model: ModelConfig, folder: Path) -> str:
    """Return a model as the text of its part of a factory file."""
    name = propose_name(folder.name, NAME, 'model')
    cameras = ', '.join(f'{camera}: {{input: {quoted(config.input)}}}' if config.input else
                        f'{camera}: {{}}' for camera, config in model.cameras.items())
    lines = [
        'models:', f'  {name}:', f'    architecture: {model.architecture}',
        f'    checkpoint: {quoted(model.checkpoint)}',
        *([f'    tokenizer: {quoted(model.tokenizer)}'] if model.tokenizer else []),
        f'    cameras: {{{cameras}}}  # rename to those of your robots, {{input: ...}} says '
        'which is which',
        f'    joints: [{listed(model.joints)}]  # as in your JointState, in the order of the '
        'training',
        *([f'    actions: [{listed(model.actions)}]'] if model.actions else [])]
    if described.step_duration is None:
        lines.append(f'    step_duration: {model.step_duration:.6f}  # 1 / frames per second of '
                     'the recordings')
    lines += [f'    rate: {model.rate}  # requests of one robot per second',
              f'    slo: {model.slo}  # s that a request may take']
    return '\n'.join(lines) + '\n'


def numbered(kind: str, count: int) -> tuple[str, ...]:
    """Return so many names."""
    return tuple(f'{kind}_{index}' for index in range(1, count + 1))


def listed(names: Iterable[str]) -> str:
    """Return names as what stands in a list."""
    return ', '.join(map(quoted, names))


def quoted(text: str) -> str:
    """Return text as YAML takes it, in quotes where it needs them."""
    plain = text.replace('_', '').replace('/', '').replace('.', '').replace('-', '')
    reserved = {'y', 'n', 'yes', 'no', 'on', 'off', 'true', 'false', 'null'}
    if plain.isalnum() and plain.isascii() and not plain.isdigit() and text[0] not in '.-' and (
            text.lower() not in reserved and not text[0].isdigit()):
        return text
    return "'" + text.replace("'", "''") + "'"
