# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5 from the folders that lerobot and openpi save them in.

Sizes are read off the tensors, so that every variant is served; what the robots must bring, and
how it is processed, off the files beside them. Knows no device, and reads no values of weights.
"""

from dataclasses import replace
import math
from pathlib import Path

from robion_ros.models import openpi_folder, pictures
from robion_ros.models.folder import CONFIG
from robion_ros.models.key_table import count_layers
from robion_ros.models.layouts import detect
from robion_ros.models.lerobot_folder import read_policy
from robion_ros.models.pi0_config import CONFIGS, KEYS, Pi0Config
from robion_ros.models.pi0_processing import openpi_words, Pi0Processing
from robion_ros.models.policy_folder import (
    check_numbers,
    from_lerobot,
    PolicyFolder,
    read_sizes,
    Shapes,
)
from robion_ros.models.policy_processing import lerobot_words

TOKENIZER = ('tokenizer.json, or tokenizer.model, of google/paligemma-3b-pt-224, or '
             'paligemma_tokenizer.model')
VISION_HEADS = 16
"""Of every SigLIP So400m: its tensors do not tell."""
OPENPI_NOTE = ('what openpi does for a kind of robot (its policy files: signs, grippers, deltas) '
               'is code, not in the checkpoint: states must come, and actions are given, as they '
               'are next to the model')
OWN_STEPS = 'pi0_new_line_processor', 'pi05_prepare_state_tokenizer_processor_step'
"""Steps of these policies; Pi0Processing does what they do."""


def read_folder(folder: Path) -> PolicyFolder:
    """Read what a folder says, without a robot; raise CheckpointError where it lacks something."""
    trait = detect(folder)
    config = read_sizes(folder, KEYS[trait.architecture], CONFIGS[trait.architecture], sized)
    return (_lerobot if trait.layout == 'lerobot' else _openpi)(folder, config)


def sized(config: Pi0Config, shapes: Shapes) -> Pi0Config:
    """Return a configuration with the sizes that a checkpoint's tensors have."""
    vocabulary, width = shapes['embed_tokens.weight']
    vision_width, _, patch_size, _ = shapes['vision_tower.patch_embedding.weight']
    places, _ = shapes['vision_tower.position_embedding.weight']
    expert_width, padded_size = shapes['action_in_proj.weight']
    head_size, _ = shapes['language_model.0.self_attn.k_proj.weight']
    of_heads, _ = shapes['language_model.0.self_attn.q_proj.weight']
    return replace(
        config, vocabulary=vocabulary, width=width, vision_width=vision_width,
        patch_size=patch_size, image_size=math.isqrt(places) * patch_size,
        vision_heads=VISION_HEADS, expert_width=expert_width, padded_size=padded_size,
        kv_heads=1, head_size=head_size, heads=of_heads // head_size,
        hidden=shapes['language_model.0.mlp.gate_proj.weight'][0],
        expert_hidden=shapes['expert.0.mlp.gate_proj.weight'][0],
        vision_hidden=shapes['vision_tower.layers.0.mlp.fc1.weight'][0],
        layers=count_layers('language_model', shapes),
        vision_layers=count_layers('vision_tower.layers', shapes))


def _lerobot(folder: Path, sizes: Pi0Config) -> PolicyFolder:
    processing = Pi0Processing(sizes, picture=pictures.exact, wording=lerobot_words)
    return from_lerobot(read_policy(folder, OWN_STEPS), sizes, processing, TOKENIZER,
                        'image_resolution', 'num_inference_steps')


def _openpi(folder: Path, sizes: Pi0Config) -> PolicyFolder:
    assets = openpi_folder.read_assets(folder)
    in_prompt = sizes.adaptive and assets.fields.read('discrete_state_input', bool, sizes.adaptive)
    states, actions = (assets.size(key, sizes.padded_size) for key in ('state', 'actions'))
    config = replace(
        sizes, cameras=len(openpi_folder.CAMERAS), state_size=states, action_size=actions,
        horizon=assets.fields.read('action_horizon', int),
        prompt_tokens=assets.fields.read('max_token_len', int, sizes.prompt_tokens),
        state_in_prompt=in_prompt, times_added_up=True)
    check_numbers(config, folder / CONFIG)
    return PolicyFolder(
        folder, 'openpi', config,
        Pi0Processing(config, picture=pictures.smoothed, wording=openpi_words),
        assets.units('state', sizes.adaptive).cut(states),
        assets.units('actions', sizes.adaptive).cut(actions), openpi_folder.CAMERAS, {},
        (assets.least('state'), assets.least('actions')), TOKENIZER, notes=(OPENPI_NOTE,))
