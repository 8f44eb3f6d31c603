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

from robion_ros.config import ModelConfig
from robion_ros.models import mibot_folder
from robion_ros.models.cameras import place_cameras
from robion_ros.models.description import Description
from robion_ros.models.folder import CheckpointError, Fields
from robion_ros.models.mibot_folder import MibotFolder, read_mibot
from robion_ros.models.processing import Scaling
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
class XiaomiFolder:
    """What a checkpoint folder says of a policy, before a robot is known."""

    mibot: MibotFolder
    robot: str
    config: XiaomiConfig
    """With as many cameras, states and actions as the policy has places for."""
    processing: XiaomiProcessing
    """Without tokenizer, and with cameras in the policy's order."""
    cameras: tuple[str, ...]
    step_duration: float | None = None
    """No such folder says it."""

    def tokenizer(self, configured: str) -> Tokenizer:
        """Open the tokenizer; raise CheckpointError unless it knows pictures by the same token."""
        folder, wanted = self.mibot.folder, self.config.image_token
        tokenizer = open_tokenizer(folder, configured, TOKENIZER, self.config.vocabulary, WORDS)
        found = tokenizer.encode(PICTURE)
        if found != [wanted]:
            raise CheckpointError(
                f'tokenizer {find_tokenizer(folder, configured)} makes {found} of {PICTURE}, the '
                f'model knows it as {wanted}: it is not the one that the model was trained with, '
                f'{TOKENIZER}')
        return tokenizer

    def describe(self, tokenizer: str | None, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; tokenizer is its file, problems are those of the rest."""
        c = self.config
        sizes = dict.fromkeys(f'{rows}x{columns}' for rows, columns in c.pictures)
        others = [robot for robot in self.mibot.robots if robot != self.robot]
        notes = (*NOTES, STRETCHED_NOTE, *(
            [f'it was trained for {", ".join(others)} as well, see robot_type'] * bool(others)))
        return Description(
            c.architecture, 'mibot', self.cameras, len(self.cameras), c.state_size, c.action_size,
            (), c.horizon, c.steps, self.step_duration, ' and '.join(sizes), c.prompt_tokens,
            'not scaled', f'scaled by mean and deviation of {self.robot}', tokenizer, notes,
            problems)

    def serve(self, model: ModelConfig, step_duration: float) -> XiaomiProcessing:
        """Return the processing for the robots of a factory file."""
        order = place_cameras(model.cameras, self.cameras, {}, self.mibot.folder)
        given = [camera.input or name for name, camera in model.cameras.items()]
        wanted = [name for name in self.cameras if name in given] or self.cameras
        kept = [self.cameras.index(name) for name in wanted]
        made, config = self.processing, self.config
        assert made.views and made.sizes
        config = replace(config, pictures=tuple(config.pictures[index] for index in kept),
                         state_size=min(len(model.joints), config.padded_size),
                         step_duration=step_duration)
        return replace(
            made, config=config, tokenizer=self.tokenizer(model.tokenizer), order=order,
            views=tuple(made.views[index] for index in kept),
            sizes=tuple(made.sizes[index] for index in kept))


def read_folder(folder: Path) -> XiaomiFolder:
    """Read what a folder says, without a robot; raise CheckpointError where it lacks something."""
    mibot = read_mibot(folder)
    robot, client, config = mibot.robot, mibot.client, read_sizes(mibot.fields)
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


def read_sizes(fields: Fields) -> XiaomiConfig:
    """Return the sizes that config.json says; raise CheckpointError for other kinds of layers."""
    text, vision, dit = 'vlm_config.text_config.', 'vlm_config.vision_config.', 'dit_config.'

    def whole(key: str, default: int | None = None, most: int = 1_000_000) -> int:
        number = fields.read(key, int, default)
        if not 1 <= number <= most:
            raise CheckpointError(f'{fields.path}: {key} is {number}, must be from 1 to {most}')
        return number

    for key, wanted in ((f'{text}hidden_act', 'silu'), (f'{text}attention_bias', False),
                        (f'{text}rms_norm_eps', 1e-6), (f'{vision}in_channels', 3),
                        (f'{vision}hidden_act', 'gelu_pytorch_tanh'), ('state_length', 1)):
        fields.expect(key, wanted)
    heads_of = whole(f'{dit}hidden_size', XIAOMI.expert_width), whole(f'{dit}head_dim', 128)
    kv_heads, head_size = whole(f'{text}num_key_value_heads'), whole(f'{text}head_dim')
    if heads_of != (kv_heads * head_size, head_size):
        raise CheckpointError(
            f'{fields.path}: dit_config has hidden_size and head_dim {heads_of}, must be '
            f'{(kv_heads * head_size, head_size)}, as the language model has its keys')
    for key in ('state_dim', 'action_dim'):
        fields.expect(key, XIAOMI.padded_size)
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
        taps=_whole_numbers(fields, f'{vision}deepstack_visual_indexes'),
        width=whole(f'{text}hidden_size'), hidden=whole(f'{text}intermediate_size'),
        layers=whole(f'{text}num_hidden_layers', most=MOST_LAYERS),
        heads=whole(f'{text}num_attention_heads'),
        kv_heads=kv_heads, head_size=head_size, **_rotation(fields, text, head_size),
        expert_layers=whole(f'{dit}num_hidden_layers', XIAOMI.expert_layers, MOST_LAYERS))


def _rotation(fields: Fields, text: str, head_size: int) -> dict[str, Any]:
    # Newer versions of the library keep all of it in one place.
    newer = bool(fields.read(f'{text}rope_parameters', dict, {}))
    place = f'{text}rope_parameters' if newer else f'{text}rope_scaling'
    fields.expect(f'{place}.rope_type', 'default')
    sections = _whole_numbers(fields, f'{place}.mrope_section')
    if len(sections) != 3 or 2 * sum(sections) != head_size:
        raise CheckpointError(f'{fields.path}: {place}.mrope_section is {list(sections)}, must be '
                              f'three numbers whose sum is {head_size // 2}')
    base = fields.read(f'{place}.rope_theta' if newer else f'{text}rope_theta', float, XIAOMI.base)
    return {'sections': sections, 'base': base}


def _whole_numbers(fields: Fields, key: str) -> tuple[Any, ...]:
    found = fields.read(key, list)
    if not all(type(each) is int for each in found):
        raise CheckpointError(f'{fields.path}: {key} is {found!r}, must be a list of '
                              'whole numbers')
    return tuple(found)
