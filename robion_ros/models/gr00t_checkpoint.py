# SPDX-License-Identifier: Apache-2.0
"""
GR00T N1.5 from the folders that Isaac-GR00T and lerobot save it in.

Sizes are read off the tensors, so that every variant is served; what tensors do not tell, off
config.json, and what the robots must bring off the files beside it. Knows no device, and reads no
values of weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from robion_ros.config import ModelConfig
from robion_ros.models import isaac_folder, lerobot_folder
from robion_ros.models.cameras import place_cameras
from robion_ros.models.description import Description
from robion_ros.models.folder import CheckpointError, CONFIG, read_json
from robion_ros.models.gr00t_config import FULL, Gr00tConfig, KEYS
from robion_ros.models.gr00t_pictures import cropped, squeezed
from robion_ros.models.gr00t_processing import (
    formal_words,
    Gr00tProcessing,
    isaac_words,
    lerobot_words,
    SPECIAL,
)
from robion_ros.models.isaac_units import Range
from robion_ros.models.key_table import count_layers
from robion_ros.models.layouts import detect, Layout
from robion_ros.models.policy_folder import read_sizes, Shapes
from robion_ros.models.processing import Change, IDENTITY, Span
from robion_ros.models.tokenizer import Tokenizer
from robion_ros.models.tokenizer_files import open_tokenizer

TOKENIZER = ('vocab.json, merges.txt and added_tokens.json of '
             'lerobot/eagle2hg-processor-groot-n1p5')
VISION_HEADS = 16
"""Of every SigLIP So400m: its tensors do not tell."""
PACK, UNPACK = 'groot_pack_inputs_v3', 'groot_action_unpack_unnormalize_v1'
OWN_STEPS = PACK, 'groot_eagle_encode_v3', 'groot_eagle_collate_v3', UNPACK
"""Steps of lerobot's policy; Gr00tProcessing does what they do."""
SERVED: Sequence[tuple[str, Any, Any]] = (
    ('action_head_cfg.diffusion_model_cfg.interleave_self_attention', True, False),
    ('action_head_cfg.diffusion_model_cfg.norm_type', 'ada_norm', 'ada_norm'),
    ('action_head_cfg.diffusion_model_cfg.positional_embeddings', None, 'sinusoidal'),
    ('action_head_cfg.vl_self_attention_cfg.positional_embeddings', None, 'sinusoidal'),
    ('action_head_cfg.use_vlln', True, True), ('action_head_cfg.add_pos_embed', True, True),
    ('backbone_cfg.project_to_dim', None, 1536))
"""Where in config.json stands what has to be so, and what it is where nothing stands."""
NUMBERS = (
    ('expert_heads', 'action_head_cfg.diffusion_model_cfg.num_attention_heads', None),
    ('adapter_heads', 'action_head_cfg.vl_self_attention_cfg.num_attention_heads', None),
    ('horizon', 'action_head_cfg.action_horizon', None),
    ('steps', 'action_head_cfg.num_inference_timesteps', None),
    ('buckets', 'action_head_cfg.num_timestep_buckets', 1000))
"""Sizes that stand there, and what they are where nothing does; None: they must."""
CROP_NOTE = 'pictures are cut to the middle 95 % of their sides, as Isaac-GR00T does by default'
BASE_NOTE = ('the base model {!r} is no folder here: heads, steps and horizon are taken to be '
             'those of nvidia/GR00T-N1.5-3B')
RANGES, UNSCALED = 'scaled from ranges to -1 ... 1', 'not scaled: there are no statistics'


@dataclass(frozen=True)
class Gr00tFolder:
    """What a checkpoint folder says of a policy, before a robot is known."""

    path: Path
    layout: Layout
    config: Gr00tConfig
    cameras: tuple[str, ...]
    """In the order of the policy's inputs."""
    state: Change
    actions: Change
    units: tuple[str, str]
    """Of states and actions, for people."""
    processing: Mapping[str, Any]
    """More of what Gr00tProcessing is made with."""
    step_duration: float | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Other names of cameras."""
    action_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def tokenizer(self, configured: str) -> Tokenizer:
        """Open the tokenizer."""
        return open_tokenizer(self.path, configured, TOKENIZER, self.config.vocabulary, SPECIAL)

    def describe(self, tokenizer: str | None, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; tokenizer is its file, problems are those of the rest."""
        c = self.config
        return Description(
            c.architecture, self.layout, self.cameras, len(self.cameras), c.state_size,
            c.action_size, self.action_names, c.horizon, c.steps, self.step_duration,
            c.image_size, c.prompt_tokens, *self.units, tokenizer, self.notes, problems)

    def serve(self, model: ModelConfig, step_duration: float) -> Gr00tProcessing:
        """Return the processing for the robots of a factory file."""
        order = place_cameras(model.cameras, self.cameras, self.renamed, self.path)
        config = replace(self.config, cameras=len(order), step_duration=step_duration)
        return Gr00tProcessing.open(
            config, self.tokenizer(model.tokenizer), order=order, state=self.state,
            actions=self.actions, **self.processing)


def read_folder(folder: Path) -> Gr00tFolder:
    """Read what a folder says, without a robot; raise CheckpointError where it lacks something."""
    trait = detect(folder)
    config = read_sizes(folder, KEYS, FULL, sized)
    return (_lerobot if trait.layout == 'lerobot' else _isaac)(folder, config)


def sized(config: Gr00tConfig, shapes: Shapes) -> Gr00tConfig:
    """Return a configuration with the sizes that a checkpoint's tensors have."""
    vocabulary, width = shapes['embed_tokens.weight']
    vision_width, _, patch_size, _ = shapes['vision_tower.patch_embedding.weight']
    patches, _ = shapes['vision_tower.position_embedding.weight']
    head_size, = shapes['language_model.0.self_attn.q_norm.weight']
    of_heads, _ = shapes['language_model.0.self_attn.q_proj.weight']
    of_pairs, _ = shapes['language_model.0.self_attn.k_proj.weight']
    future_tokens, expert_width = shapes['future_tokens.weight']
    embodiments, padded_state, _ = shapes['state_encoder.layer1.W']
    _, padded_action, _ = shapes['action_encoder.W1.W']
    return replace(
        config, vocabulary=vocabulary, width=width, patch_size=patch_size,
        image_size=round(patches ** 0.5) * patch_size, vision_width=vision_width,
        vision_heads=VISION_HEADS, vision_layers=count_layers('vision_tower.layers', shapes),
        vision_hidden=shapes['vision_tower.layers.0.mlp.fc1.weight'][0],
        hidden=shapes['language_model.0.mlp.gate_proj.weight'][0],
        layers=count_layers('language_model', shapes), head_size=head_size,
        heads=of_heads // head_size, kv_heads=of_pairs // head_size,
        adapter_layers=count_layers('adapter', shapes), future_tokens=future_tokens,
        expert_width=expert_width, expert_layers=count_layers('expert', shapes),
        expert_output=shapes['proj_out_2.weight'][0], embodiments=embodiments,
        padded_state=padded_state, padded_action=padded_action,
        places=shapes['position_embedding.weight'][0])


def with_heads(config: Gr00tConfig, fields: Mapping[str, Any], place: Path) -> Gr00tConfig:
    """Return a configuration with what its tensors do not tell; fields are of a config.json."""
    for keys, served, default in SERVED:
        found = _at(fields, keys, default)
        if found != served:
            raise CheckpointError(f'{place}: {keys} is {found!r}, must be {served!r}: another '
                                  'network is not served')
    layers = _at(fields, 'backbone_cfg.select_layer', -1)
    if layers != config.layers:
        raise CheckpointError(f'{place}: backbone_cfg.select_layer is {layers!r}, the weights '
                              f'have {config.layers} layers')
    numbers: dict[str, Any] = {}
    for name, keys, default in NUMBERS:
        number = _at(fields, keys, default)
        if type(number) is not int or number < 1:
            raise CheckpointError(f'{place}: {keys} is {number!r}, must be a whole number from 1')
        numbers[name] = number
    return _checked(replace(config, **numbers), fields, place)


def _at(fields: Any, keys: str, default: Any) -> Any:
    """Return what stands at keys with points between them: null, too, is an answer here."""
    for key in keys.split('.'):
        if not isinstance(fields, Mapping) or key not in fields:
            return default
        fields = fields[key]
    return fields


def _checked(config: Gr00tConfig, fields: Mapping[str, Any], place: Path) -> Gr00tConfig:
    """Return a configuration with the longest prompt of its config.json, if it may be."""
    prompt_tokens = fields.get('tokenizer_max_length', config.prompt_tokens)
    if type(prompt_tokens) is not int or not 8 <= prompt_tokens <= 4096:
        raise CheckpointError(f'{place}: tokenizer_max_length is {prompt_tokens!r}, must be a '
                              'whole number from 8 to 4096')
    for what, whole, part in (
            ('expert', config.expert_width, config.expert_heads),
            ('adapter', config.width, config.adapter_heads)):
        if whole % part:
            raise CheckpointError(f'{place}: {part} heads do not divide the width {whole} of the '
                                  f'{what}')
    for what, number, most in (('action_horizon', config.horizon, config.places),
                               ('embodiment_id', config.embodiment, config.embodiments - 1),
                               ('values of an action', config.action_size, config.padded_action)):
        if type(number) is not int or not 0 <= number <= most:
            raise CheckpointError(f'{place}: {what}: {number!r}, the weights take at '
                                  f'most {most}, and nothing below 0')
    return replace(config, prompt_tokens=prompt_tokens)


def _isaac(folder: Path, sizes: Gr00tConfig) -> Gr00tFolder:
    robots = isaac_folder.read_embodiment(folder)
    config = with_heads(replace(
        sizes, embodiment=robots.number, state_size=sum(robots.sizes('state')),
        action_size=sum(robots.sizes('action'))), read_json(folder), folder / CONFIG)
    data = robots.data
    modes = data.state_normalization_modes, data.action_normalization_modes
    units = [', '.join(sorted(set(of.values()))) or UNSCALED for of in modes]
    return Gr00tFolder(
        folder, 'Isaac-GR00T', config, robots.cameras, robots.change('state'),
        robots.change('action'), (units[0], units[1]),
        {'picture': cropped, 'wording': isaac_words}, robots.step_duration,
        action_names=robots.names('action'), notes=(CROP_NOTE, *robots.notes))


def _lerobot(folder: Path, sizes: Gr00tConfig) -> Gr00tFolder:
    policy = lerobot_folder.read_policy(folder, OWN_STEPS)
    pack, unpack = policy.step(PACK), policy.step(UNPACK)
    if pack is None or unpack is None:
        raise CheckpointError(f'{folder}: the step {PACK if pack is None else UNPACK} is missing')
    if pack.config.get('max_state_dim', sizes.padded_state) != sizes.padded_state:
        raise CheckpointError(f'{folder}: max_state_dim is {pack.config["max_state_dim"]}, the '
                              f'weights take {sizes.padded_state}')
    tag = pack.config.get('embodiment_tag')
    embodiment = pack.config.get('embodiment_mapping', {}).get(tag, 0)  # As it is there.
    states, actions = policy.size(lerobot_folder.STATE), policy.size(lerobot_folder.ACTION)
    if states > sizes.padded_state:
        raise CheckpointError(f'{folder / CONFIG}: a state has {states} values, the weights take '
                              f'at most {sizes.padded_state}')
    config = replace(sizes, embodiment=embodiment, state_size=states, action_size=actions)
    base = Path(policy.fields.read('base_model_path', str, ''))
    base = base if base.is_absolute() else folder / base
    notes: tuple[str, ...] = ()
    if policy.fields.values.get('base_model_path') and (base / CONFIG).is_file():
        config = with_heads(config, read_json(base) | dict(policy.fields.values), base / CONFIG)
    else:
        config = _checked(config, policy.fields.values, policy.fields.path)
        notes = (BASE_NOTE.format(policy.fields.values.get('base_model_path')),)
    changes = [_range(step, key, size, folder) for step, key, size in (
        (pack, lerobot_folder.STATE, states), (unpack, lerobot_folder.ACTION, actions))]
    units = [RANGES if isinstance(change, Range) else UNSCALED for change in changes]
    words = formal_words if pack.config.get('formalize_language') else lerobot_words
    return Gr00tFolder(
        folder, 'lerobot', config, tuple(sorted(policy.cameras)), changes[0],
        changes[1], (units[0], units[1]), {'picture': squeezed, 'wording': words},
        renamed=policy.renamed, notes=notes)


def _range(step: lerobot_folder.Step, key: str, size: int, folder: Path) -> Change:
    """Return how lerobot's steps scale a state or action."""
    found = {name.rpartition('.')[2]: values for name, values in step.tensors.items()
             if name.rpartition('.')[0] == key}
    if not step.config.get('normalize_min_max') or not found:
        return IDENTITY
    try:
        span = lerobot_folder.make_units('MIN_MAX', found, 0.0, size)
    except ValueError as error:
        raise CheckpointError(f'{folder}: {step.name}: {key}: {error}') from error
    assert isinstance(span, Span)
    return Range(span.low, span.width)
