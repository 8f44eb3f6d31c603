# SPDX-License-Identifier: Apache-2.0
"""
SmolVLA from the folder that lerobot saves it in.

Most sizes are read off the tensors, so that other widths and depths are served; what the robots
must bring, and how it is processed, off the files beside them. Knows no device, and reads no
values of weights.
"""

from dataclasses import replace
import math
from pathlib import Path

from robion_ros.models import pictures
from robion_ros.models.folder import CheckpointError
from robion_ros.models.key_table import count_layers
from robion_ros.models.lerobot_folder import Policy, read_policy
from robion_ros.models.policy_folder import from_lerobot, PolicyFolder, read_sizes, Shapes
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.smolvla_config import KEYS, SMOLVLA, SmolvlaConfig

TOKENIZER = 'tokenizer.json of HuggingFaceTB/SmolVLM2-500M-Video-Instruct'
HEAD_SIZE = 64
"""Of every SmolVLM2: its tensors do not tell, and neither do those of its SigLIP, below."""
VISION_HEADS = {768: 12, 1152: 16}
"""By width: SigLIP base and So400m."""
OWN_STEPS = ('smolvla_new_line_processor',)
"""Steps of this policy; PolicyProcessing does what they do."""
ONLY = {'attention_mode': 'cross_attn', 'adapt_to_pi_aloha': False,
        'use_delta_joint_actions_aloha': False, 'add_image_special_tokens': False}
"""Settings of which one choice is served, the one of the published model."""


def read_folder(folder: Path) -> PolicyFolder:
    """Read what a folder says, without a robot; raise CheckpointError where it lacks something."""
    policy = read_policy(folder, OWN_STEPS)
    sizes = read_sizes(folder, KEYS, SMOLVLA, sized)
    sizes = replace(sizes, joint_every=policy.fields.read('self_attn_every_n_layers', int,
                                                    sizes.joint_every))
    check_settings(policy, sizes)
    processing = PolicyProcessing(sizes, picture=pictures.exact_at_end)
    return from_lerobot(policy, sizes, processing, TOKENIZER, 'resize_imgs_with_padding',
                        'num_steps', begin='')


def check_settings(policy: Policy, sizes: SmolvlaConfig) -> None:
    """Raise CheckpointError where a setting changes what the network does, and is not served."""
    place = policy.fields.path
    for key, wanted in ONLY.items():
        found = policy.fields.values.get(key, wanted)
        if found != wanted:
            raise CheckpointError(f'{place}: {key} is {found!r}, only {wanted!r} is served')
    if not 2 <= sizes.joint_every <= sizes.layers:
        raise CheckpointError(f'{place}: self_attn_every_n_layers is {sizes.joint_every}, must be '
                              f'from 2 to {sizes.layers}')
    experts = policy.fields.read('num_expert_layers', int, -1)
    if 0 < experts != sizes.layers:
        raise CheckpointError(f'{place}: num_expert_layers is {experts}, only as many as the '
                              f'language model has, {sizes.layers}, are served')


def sized(config: SmolvlaConfig, shapes: Shapes) -> SmolvlaConfig:
    """Return a configuration with the sizes that a checkpoint's tensors have."""
    vocabulary, width = shapes['embed_tokens.weight']
    vision_width, _, patch_size, _ = shapes['vision_tower.patch_embedding.weight']
    places, _ = shapes['vision_tower.position_embedding.weight']
    _, of_square = shapes['connector.weight']
    expert_width, padded_size = shapes['action_in_proj.weight']
    of_heads, _ = shapes['language_model.0.self_attn.q_proj.weight']
    of_keys, _ = shapes['language_model.0.self_attn.k_proj.weight']
    return replace(
        config, vocabulary=vocabulary, width=width, vision_width=vision_width,
        patch_size=patch_size, image_size=math.isqrt(places) * patch_size,
        vision_heads=VISION_HEADS.get(vision_width, 12),
        shuffle=math.isqrt(of_square // vision_width), expert_width=expert_width,
        padded_size=padded_size, head_size=HEAD_SIZE, heads=of_heads // HEAD_SIZE,
        kv_heads=of_keys // HEAD_SIZE, hidden=shapes['language_model.0.mlp.gate_proj.weight'][0],
        expert_hidden=shapes['expert.0.mlp.gate_proj.weight'][0],
        vision_hidden=shapes['vision_tower.layers.0.mlp.fc1.weight'][0],
        layers=count_layers('language_model', shapes),
        vision_layers=count_layers('vision_tower.layers', shapes))
