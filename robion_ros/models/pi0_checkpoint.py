# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5 from the folders that lerobot and openpi save them in.

Sizes are read off the tensors, so that every variant is served; what the robots must bring, and
how it is processed, off the files beside them. Knows no device, and reads no values of weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
import math
from pathlib import Path
import re

from robion_ros.config import FieldError, ModelConfig
from robion_ros.models import lerobot_folder, openpi_folder, pictures
from robion_ros.models.cameras import place_cameras
from robion_ros.models.description import Description
from robion_ros.models.folder import CheckpointError, CONFIG
from robion_ros.models.hub import locate
from robion_ros.models.layouts import check_architecture, detect, Layout
from robion_ros.models.pi0_config import CONFIGS, KEYS, Pi0Config
from robion_ros.models.pi0_processing import lerobot_words, openpi_words, Pi0Processing
from robion_ros.models.processing import IDENTITY, Scaling, Span
from robion_ros.models.protocol import ModelSpec
from robion_ros.models.shards import open_shards
from robion_ros.models.tokenizer_files import find_tokenizer, open_tokenizer

TOKENIZER = 'that of google/paligemma-3b-pt-224'
VISION_HEADS = 16
"""Of every SigLIP So400m: its tensors do not tell."""
KINDS = {Scaling: 'scaled by mean and deviation', Span: 'scaled from a range to -1 ... 1'}
UNSCALED = 'not scaled: there are no statistics'
UNSCALED_NOTE = ('without statistics states and actions pass as they are, as in a base model '
                 'that was not fine-tuned for a robot')
FEWER_NOTE = ('lerobot runs the first {} steps of a chunk before it asks again; here a chunk '
              'holds all, and a robot asks at its rate')
OPENPI_NOTE = ('what openpi does for a kind of robot (its policy files: signs, grippers, deltas) '
               'is code, not in the checkpoint: states must come, and actions are given, as they '
               'are next to the model')
OWN_STEPS = 'pi0_new_line_processor', 'pi05_prepare_state_tokenizer_processor_step'
"""Steps of these policies; Pi0Processing does what they do."""


@dataclass(frozen=True)
class Pi0Source:
    """What a pi0 is made of beside its weights."""

    config: Pi0Config
    processing: Pi0Processing
    folder: Path | None = None
    """Of the weights; None: they are random."""

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return self.config.spec


@dataclass(frozen=True)
class Pi0Folder:
    """What a checkpoint folder says of a policy, before a robot is known."""

    path: Path
    layout: Layout
    config: Pi0Config
    """With as many cameras, states and actions as the policy has places for."""
    processing: Pi0Processing
    """Without tokenizer, and with cameras in the policy's order."""
    cameras: tuple[str, ...]
    renamed: Mapping[str, str]
    """Other names of cameras."""
    fewest: tuple[int, int]
    """Values of a state and of an action that a robot must have."""
    action_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def describe(self, tokenizer: str, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; problems are those of the weights."""
        c, path = self.config, find_tokenizer(self.path, tokenizer)
        try:
            open_tokenizer(self.path, tokenizer, TOKENIZER, c.vocabulary)
        except (CheckpointError, ImportError) as error:
            problems = (*problems, str(error))
        units = [KINDS[type(units)] if units is not IDENTITY else UNSCALED
                 for units in (self.processing.state, self.processing.actions)]
        if self.processing.relative is not None:
            units[1] += ', relative to the state'
        sizes = [most if words == UNSCALED else least for least, most, words in
                 zip(self.fewest, (c.state_size, c.action_size), units, strict=True)]
        notes = self.notes + (UNSCALED_NOTE,) * (UNSCALED in units)
        return Description(
            c.architecture, self.layout, self.cameras, len(self.cameras), sizes[0], sizes[1],
            self.action_names, c.horizon, c.steps, None, c.image_size, c.prompt_tokens, units[0],
            units[1], str(path) if path else None, notes, problems)


def read_source(model: ModelConfig) -> Pi0Source:
    """Read the checkpoint of a model of a factory file, for its robots."""
    folder = locate(model.checkpoint)
    check_architecture(detect(folder), model.architecture, folder)
    found = read_folder(folder)
    if not model.step_duration:
        raise FieldError('step_duration', f'checkpoint {folder} does not say how long one step of '
                                          'a chunk lasts: write 1 / the frames per second of the '
                                          'recordings that it was trained on')
    order = place_cameras(model.cameras, found.cameras, found.renamed, folder)
    # Nothing but zeros stands where a robot may have fewer values.
    states, actions = (max(least, min(given, most)) for least, given, most in zip(
        found.fewest, (len(model.joints), len(model.action_names)),
        (found.config.state_size, found.config.action_size), strict=True))
    config = replace(found.config, cameras=len(order), step_duration=model.step_duration,
                     state_size=states, action_size=actions)
    tokenizer = open_tokenizer(folder, model.tokenizer, TOKENIZER, config.vocabulary)
    processing = replace(
        found.processing, config=config, tokenizer=tokenizer, order=order,
        state=found.processing.state.cut(states), actions=found.processing.actions.cut(actions))
    return Pi0Source(config, processing, folder)


def read_folder(folder: Path) -> Pi0Folder:
    """Read what a folder says, without a robot; raise CheckpointError where it lacks something."""
    trait = detect(folder)
    with open_shards(folder) as shards:
        named = KEYS[trait.architecture].pairs(shards.keys)
        shapes = {name: shards.shapes[key] for name, key in named}
        place = shards.place
    try:
        config = sized(CONFIGS[trait.architecture], shapes)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f'{place} does not fit the model: {error} is missing or has another '
                              f'shape than in any {trait.architecture}') from error
    return (_lerobot if trait.layout == 'lerobot' else _openpi)(folder, config)


def sized(config: Pi0Config, shapes: Mapping[str, Sequence[int]]) -> Pi0Config:
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
        layers=_count('language_model', shapes),
        vision_layers=_count('vision_tower.layers', shapes))


def _count(stack: str, shapes: Mapping[str, Sequence[int]]) -> int:
    found = [int(match[1]) for name in shapes if (match := re.match(rf'{stack}\.(\d+)\.', name))]
    return max(found) + 1


def _lerobot(folder: Path, sizes: Pi0Config) -> Pi0Folder:
    policy = lerobot_folder.read_policy(folder, OWN_STEPS)
    resolution = policy.field('image_resolution', list, [sizes.image_size] * 2)
    if resolution != [sizes.image_size] * 2:
        raise CheckpointError(f'{folder / CONFIG}: image_resolution is {resolution}, the weights '
                              f'are for {[sizes.image_size] * 2}')
    states, actions = policy.size(lerobot_folder.STATE), policy.size(lerobot_folder.ACTION)
    if max(states, actions) > sizes.padded_size:
        raise CheckpointError(f'{folder / CONFIG}: a state has {states} and an action {actions} '
                              f'values, the weights take at most {sizes.padded_size}')
    config = replace(
        sizes, cameras=len(policy.cameras), state_size=states, action_size=actions,
        horizon=policy.field('chunk_size', int, sizes.horizon),
        steps=policy.field('num_inference_steps', int, sizes.steps),
        prompt_tokens=policy.field('tokenizer_max_length', int, sizes.prompt_tokens),
        shortest_period=policy.field('min_period', float, sizes.shortest_period),
        longest_period=policy.field('max_period', float, sizes.longest_period))
    relative = policy.relative(actions)
    if relative is not None and states < actions:
        raise CheckpointError(f'{folder}: actions are relative to the state, and there are '
                              f'{actions} of them for {states} states')
    processing = Pi0Processing(
        config, picture=pictures.exact, wording=lerobot_words,
        state=policy.units(lerobot_folder.STATE), actions=policy.units(lerobot_folder.ACTION),
        relative=relative)
    fewest = (1 if processing.state is IDENTITY else states,
              1 if processing.actions is IDENTITY and relative is None else actions)
    names = policy.fields.get('action_feature_names') or ()
    run = policy.fields.get('n_action_steps')
    notes = (FEWER_NOTE.format(run),) if isinstance(run, int) and run < config.horizon else ()
    return Pi0Folder(folder, 'lerobot', config, processing, policy.cameras, policy.renamed,
                     fewest, tuple(map(str, names)), notes)


def _openpi(folder: Path, sizes: Pi0Config) -> Pi0Folder:
    assets = openpi_folder.read_assets(folder)
    in_prompt = sizes.adaptive and assets.field('discrete_state_input', bool, sizes.adaptive)
    states, actions = (assets.size(key, sizes.padded_size) for key in ('state', 'actions'))
    config = replace(
        sizes, cameras=len(openpi_folder.CAMERAS), state_size=states, action_size=actions,
        horizon=assets.field('action_horizon', int),
        prompt_tokens=assets.field('max_token_len', int, sizes.prompt_tokens),
        state_in_prompt=in_prompt, times_added_up=True)
    processing = Pi0Processing(
        config, picture=pictures.smoothed, wording=openpi_words,
        state=assets.units('state', sizes.adaptive).cut(states),
        actions=assets.units('actions', sizes.adaptive).cut(actions))
    return Pi0Folder(folder, 'openpi', config, processing, openpi_folder.CAMERAS, {},
                     (assets.least('state'), assets.least('actions')), notes=(OPENPI_NOTE,))
