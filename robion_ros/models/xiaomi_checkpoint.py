# SPDX-License-Identifier: Apache-2.0
"""
Xiaomi-Robotics-0 from the folders that it is published in.

Sizes are those of config.json, which the weights are held to; what the robots must bring is that
of the kind of robot that is served. Knows no device, and reads no values of weights.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from robion_ros.config import FieldError, ModelConfig
from robion_ros.models import mibot_folder
from robion_ros.models.cameras import place_cameras
from robion_ros.models.description import Description
from robion_ros.models.folder import CheckpointError, CONFIG
from robion_ros.models.hub import locate
from robion_ros.models.layouts import check_architecture, detect
from robion_ros.models.mibot_folder import MibotFolder, read_mibot
from robion_ros.models.processing import Scaling
from robion_ros.models.protocol import ModelSpec
from robion_ros.models.tokenizer import Tokenizer
from robion_ros.models.tokenizer_files import find_tokenizer, open_tokenizer
from robion_ros.models.xiaomi_config import XIAOMI, XiaomiConfig
from robion_ros.models.xiaomi_processing import scaling, XiaomiProcessing

TOKENIZER = 'tokenizer.json of Qwen/Qwen3-VL-4B-Instruct'
PICTURE = '<|image_pad|>'
MOST_LAYERS = 1000
WORDS = '<|im_start|>', '<|im_end|>', '<|vision_start|>', '<|vision_end|>', PICTURE
"""Of prompts, that are tokens of their own; the first begins them."""
NOTES = (
    "what Xiaomi's clients do for a kind of robot (rotations, grippers, the state's order, the "
    'capital and the full stop of an instruction) is code, not in the checkpoint: states and '
    'instructions must come, and actions are given, as they are next to the model',
    'the state is not scaled; zeros fill one of fewer values up')
STRETCHED_NOTE = ('pictures are stretched to the size that they were trained in: views, '
                  'image_sizes and crop_ratio may be added to config.json')


@dataclass(frozen=True)
class XiaomiSource:
    """What a model is made of beside its weights."""

    config: XiaomiConfig
    processing: XiaomiProcessing
    folder: Path | None = None
    """Of the weights; None: they are random."""

    @property
    def sizes(self) -> XiaomiConfig:
        """What the time of a request depends on, and more."""
        return self.config

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return self.config.spec


@dataclass(frozen=True)
class XiaomiFolder:
    """What a checkpoint folder says of a policy, before a robot is known."""

    mibot: MibotFolder
    robot: str
    config: XiaomiConfig
    """With as many cameras, states and actions as the policy has places for."""
    processing: XiaomiProcessing
    """Without tokenizer, and with cameras in the policy's order."""
    cameras: tuple[str, ...]

    def describe(self, tokenizer: str, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; problems are those of the weights."""
        c, folder = self.config, self.mibot.folder
        try:
            read_tokenizer(folder, tokenizer, c)
        except (CheckpointError, ImportError) as error:
            problems = (*problems, str(error))
        path = find_tokenizer(folder, tokenizer)
        sizes = dict.fromkeys(f'{rows}x{columns}' for rows, columns in c.pictures)
        others = [robot for robot in self.mibot.robots if robot != self.robot]
        notes = (*NOTES, STRETCHED_NOTE, *(
            [f'it was trained for {", ".join(others)} as well, see robot_type'] * bool(others)))
        return Description(
            c.architecture, 'mibot', self.cameras, len(self.cameras), c.state_size, c.action_size,
            (), c.horizon, c.steps, None, ' and '.join(sizes), c.prompt_tokens, 'not scaled',
            f'scaled by mean and deviation of {self.robot}', str(path) if path else None, notes,
            problems)


def read_source(model: ModelConfig) -> XiaomiSource:
    """Read the checkpoint of a model of a factory file, for its robots."""
    folder = locate(model.checkpoint)
    check_architecture(detect(folder), model.architecture, folder)
    found = read_folder(folder)
    if not model.step_duration:
        raise FieldError('step_duration', f'checkpoint {folder} does not say how long one step of '
                                          'a chunk lasts: write 1 / the frames per second of the '
                                          'recordings that it was trained on')
    order = place_cameras(model.cameras, found.cameras, {}, folder)
    wanted = [name for name in found.cameras if name in camera_names(model)] or found.cameras
    kept = [found.cameras.index(name) for name in wanted]
    made = found.processing
    assert made.views and made.sizes
    config = replace(found.config, pictures=tuple(found.config.pictures[index] for index in kept),
                     state_size=min(len(model.joints), found.config.padded_size),
                     step_duration=model.step_duration)
    processing = replace(
        made, config=config, tokenizer=read_tokenizer(folder, model.tokenizer, config),
        order=order, views=tuple(made.views[index] for index in kept),
        sizes=tuple(made.sizes[index] for index in kept))
    return XiaomiSource(config, processing, folder)


def camera_names(model: ModelConfig) -> tuple[str, ...]:
    """Return what the cameras of a model's robots are to its checkpoint."""
    return tuple(camera.input or name for name, camera in model.cameras.items())


def read_tokenizer(folder: Path, configured: str, config: XiaomiConfig) -> Tokenizer:
    """Open the tokenizer; raise CheckpointError unless it knows pictures by the same token."""
    tokenizer = open_tokenizer(folder, configured, TOKENIZER, config.vocabulary, WORDS)
    if tokenizer.encode(PICTURE) != [config.image_token]:
        raise CheckpointError(
            f'tokenizer {find_tokenizer(folder, configured)} makes {tokenizer.encode(PICTURE)} of '
            f'{PICTURE}, the model knows it as {config.image_token}: it is not the one that the '
            f'model was trained with, {TOKENIZER}')
    return tokenizer


def read_folder(folder: Path) -> XiaomiFolder:
    """Read what a folder says, without a robot; raise CheckpointError where it lacks something."""
    mibot = read_mibot(folder)
    robot, client, config = mibot.robot, mibot.client, read_sizes(mibot)
    stats = mibot.statistics(robot)
    if stats.mean.shape[1] != config.padded_size:
        raise CheckpointError(f'{folder / mibot_folder.PREPROCESSOR}: actions of {robot} have '
                              f'{stats.mean.shape[1]} values, the weights take '
                              f'{config.padded_size}')
    factor = config.patch_size * config.merge
    seen = tuple(mibot.seen_size(*client.sizes[name], factor) for name in client.views)
    size = int(np.nonzero(stats.active.any(0))[0][-1]) + 1
    config = replace(config, pictures=seen, horizon=len(stats.mean), action_size=size)
    processing = XiaomiProcessing(
        config, views=tuple(client.views.values()), crop=client.crop,
        sizes=tuple(client.sizes[name] for name in client.views),
        scaling=scaling(*mibot.pixels()), mask=stats.active,
        actions=Scaling(stats.mean[:, :size], stats.deviation[:, :size]))
    return XiaomiFolder(mibot, robot, config, processing, tuple(client.views))


def read_sizes(mibot: MibotFolder) -> XiaomiConfig:
    """Return the sizes that config.json says; raise CheckpointError for other kinds of layers."""
    text, vision, dit = 'vlm_config.text_config.', 'vlm_config.vision_config.', 'dit_config.'

    def whole(key: str, default: int | None = None, most: int = 1_000_000) -> int:
        number = mibot.field(key, int, default)
        if not 1 <= number <= most:
            raise CheckpointError(f'{mibot.folder / CONFIG}: {key} is {number}, must be from 1 to '
                                  f'{most}')
        return number

    for key, wanted in ((f'{text}hidden_act', 'silu'), (f'{text}attention_bias', False),
                        (f'{text}rms_norm_eps', 1e-6), (f'{vision}in_channels', 3),
                        (f'{vision}hidden_act', 'gelu_pytorch_tanh'), ('state_length', 1)):
        mibot.expect(key, wanted)
    heads_of = whole(f'{dit}hidden_size', XIAOMI.expert_width), whole(f'{dit}head_dim', 128)
    kv_heads, head_size = whole(f'{text}num_key_value_heads'), whole(f'{text}head_dim')
    if heads_of != (kv_heads * head_size, head_size):
        raise CheckpointError(
            f'{mibot.folder / CONFIG}: dit_config has hidden_size and head_dim {heads_of}, must '
            f'be {(kv_heads * head_size, head_size)}, as the language model has its keys')
    for key in ('state_dim', 'action_dim'):
        mibot.expect(key, XIAOMI.padded_size)
    return replace(
        XIAOMI, horizon=whole('action_length', XIAOMI.horizon),
        prompt_tokens=whole('prompt_tokens', XIAOMI.prompt_tokens),
        vocabulary=whole(f'{text}vocab_size'),
        image_token=whole('vlm_config.image_token_id', XIAOMI.image_token),
        patch_size=whole(f'{vision}patch_size', 16), merge=whole(f'{vision}spatial_merge_size', 2),
        frames=whole(f'{vision}temporal_patch_size', 2),
        places=whole(f'{vision}num_position_embeddings', XIAOMI.places),
        vision_width=whole(f'{vision}hidden_size'),
        vision_hidden=whole(f'{vision}intermediate_size'),
        vision_heads=whole(f'{vision}num_heads'),
        vision_layers=whole(f'{vision}depth', most=MOST_LAYERS),
        taps=_whole_numbers(mibot, f'{vision}deepstack_visual_indexes'),
        width=whole(f'{text}hidden_size'), hidden=whole(f'{text}intermediate_size'),
        layers=whole(f'{text}num_hidden_layers', most=MOST_LAYERS),
        heads=whole(f'{text}num_attention_heads'),
        kv_heads=kv_heads, head_size=head_size, **_rotation(mibot, text, head_size),
        expert_layers=whole(f'{dit}num_hidden_layers', XIAOMI.expert_layers, MOST_LAYERS))


def _rotation(mibot: MibotFolder, text: str, head_size: int) -> dict[str, Any]:
    # Newer versions of the library keep all of it in one place.
    newer = bool(mibot.field(f'{text}rope_parameters', dict, {}))
    place = f'{text}rope_parameters' if newer else f'{text}rope_scaling'
    mibot.expect(f'{place}.rope_type', 'default')
    sections = _whole_numbers(mibot, f'{place}.mrope_section')
    if len(sections) != 3 or 2 * sum(sections) != head_size:
        raise CheckpointError(f'{mibot.folder / CONFIG}: {place}.mrope_section is '
                              f'{list(sections)}, must be three numbers whose sum is '
                              f'{head_size // 2}')
    base = mibot.field(f'{place}.rope_theta' if newer else f'{text}rope_theta', float, XIAOMI.base)
    return {'sections': sections, 'base': base}


def _whole_numbers(mibot: MibotFolder, key: str) -> tuple[Any, ...]:
    found = mibot.field(key, list)
    if not all(type(each) is int for each in found):
        raise CheckpointError(f'{mibot.folder / CONFIG}: {key} is {found!r}, must be a list of '
                              'whole numbers')
    return tuple(found)
