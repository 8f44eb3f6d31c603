# SPDX-License-Identifier: Apache-2.0
"""
What a checkpoint folder says of a policy, and the same for the robots of a factory file.

lerobot writes most of it alike for all of its policies. Knows neither tensors' values nor what an
architecture does with them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robion_ros.config import FieldError, ModelConfig
from robion_ros.models.cameras import place_cameras
from robion_ros.models.description import Description
from robion_ros.models.folder import CheckpointError, CONFIG
from robion_ros.models.key_table import KeyTable
from robion_ros.models.layouts import Layout
from robion_ros.models.lerobot_folder import ACTION, Policy, STATE
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.processing import IDENTITY, Scaling, Span
from robion_ros.models.protocol import ModelSpec
from robion_ros.models.shards import open_shards
from robion_ros.models.tokenizer import Tokenizer
from robion_ros.models.tokenizer_files import BEGIN, find_tokenizer, open_tokenizer

KINDS = {Scaling: 'scaled by mean and deviation', Span: 'scaled from a range to -1 ... 1'}
UNSCALED = 'not scaled: there are no statistics'
UNSCALED_NOTE = ('without statistics states and actions pass as they are, as in a base model '
                 'that was not fine-tuned for a robot')
FEWER_NOTE = ('lerobot runs the first {} steps of a chunk before it asks again; here a chunk '
              'holds all, and a robot asks at its rate')

Shapes = Mapping[str, Sequence[int]]
"""Of tensors, by the names of a model's weights."""


@dataclass(frozen=True)
class PolicySource:
    """What a model is made of beside its weights."""

    config: Any
    """Sizes of the architecture."""
    processing: PolicyProcessing
    folder: Path | None = None
    """Of the weights; None: they are random."""

    @property
    def sizes(self) -> Any:
        """What the time of a request depends on, and more."""
        return self.config

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        spec: ModelSpec = self.config.spec
        return spec


@dataclass(frozen=True)
class PolicyFolder:
    """What a checkpoint folder says of a policy, before a robot is known."""

    path: Path
    layout: Layout
    config: Any
    """With as many cameras, states and actions as the policy has places for."""
    processing: PolicyProcessing
    """Without tokenizer, and with cameras in the policy's order."""
    cameras: tuple[str, ...]
    renamed: Mapping[str, str]
    """Other names of cameras."""
    fewest: tuple[int, int]
    """Values of a state and of an action that a robot must have."""
    wanted: str
    """Says which tokenizer the policy has."""
    begin: str = BEGIN
    """The token that every prompt begins with; empty: none, or as the tokenizer's file says."""
    action_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def tokenizer(self, configured: str) -> Tokenizer:
        """Open the tokenizer."""
        return open_tokenizer(self.path, configured, self.wanted, self.config.vocabulary,
                              (self.begin,) if self.begin else ())

    def describe(self, tokenizer: str, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; problems are those of the weights."""
        c, path = self.config, find_tokenizer(self.path, tokenizer)
        try:
            self.tokenizer(tokenizer)
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

    def serve(self, model: ModelConfig) -> PolicySource:
        """Return the policy for the robots of a factory file."""
        if not model.step_duration:
            raise FieldError(
                'step_duration', f'checkpoint {self.path} does not say how long one step of a '
                'chunk lasts: write 1 / the frames per second of the recordings that it was '
                'trained on')
        order = place_cameras(model.cameras, self.cameras, self.renamed, self.path)
        # Nothing but zeros stands where a robot may have fewer values.
        states, actions = (max(least, min(given, most)) for least, given, most in zip(
            self.fewest, (len(model.joints), len(model.action_names)),
            (self.config.state_size, self.config.action_size), strict=True))
        config = replace(self.config, cameras=len(order), step_duration=model.step_duration,
                         state_size=states, action_size=actions)
        processing = replace(
            self.processing, config=config, tokenizer=self.tokenizer(model.tokenizer), order=order,
            state=self.processing.state.cut(states), actions=self.processing.actions.cut(actions))
        return PolicySource(config, processing, self.path)


def without_checkpoint(model: ModelConfig, config: Any) -> Any:
    """Return sizes for the robots of a model with random weights."""
    joints, actions = len(model.joints), len(model.action_names)
    if max(joints, actions) > config.padded_size:
        raise FieldError('joints' if joints > config.padded_size else 'actions',
                         f'are {max(joints, actions)}, {model.architecture} takes at most '
                         f'{config.padded_size}')
    return replace(config, cameras=len(model.cameras), state_size=joints, action_size=actions,
                   step_duration=model.step_duration or config.step_duration)


def from_lerobot(policy: Policy, sizes: Any, processing: PolicyProcessing, wanted: str,
                 resolution: str, steps: str, begin: str = BEGIN) -> PolicyFolder:
    """
    Return what lerobot's folder says of a policy, of which the weights tell the sizes.

    resolution and steps are what config.json calls the size of pictures and the number of
    denoising steps.
    """
    path, square = policy.folder / CONFIG, [sizes.image_size] * 2
    found = policy.field(resolution, list, square)
    if found != square:
        raise CheckpointError(f'{path}: {resolution} is {found}, the weights are for {square}')
    states, actions = policy.size(STATE), policy.size(ACTION)
    if max(states, actions) > sizes.padded_size:
        raise CheckpointError(f'{path}: a state has {states} and an action {actions} values, the '
                              f'weights take at most {sizes.padded_size}')
    config = replace(
        sizes, cameras=len(policy.cameras), state_size=states, action_size=actions,
        horizon=policy.field('chunk_size', int, sizes.horizon),
        steps=policy.field(steps, int, sizes.steps),
        prompt_tokens=policy.field('tokenizer_max_length', int, sizes.prompt_tokens),
        shortest_period=policy.field('min_period', float, sizes.shortest_period),
        longest_period=policy.field('max_period', float, sizes.longest_period))
    check_numbers(config, path)
    relative = policy.relative(actions)
    if relative is not None and states < actions:
        raise CheckpointError(f'{policy.folder}: actions are relative to the state, and there are '
                              f'{actions} of them for {states} states')
    processing = replace(processing, config=config, state=policy.units(STATE),
                         actions=policy.units(ACTION), relative=relative)
    fewest = (1 if processing.state is IDENTITY else states,
              1 if processing.actions is IDENTITY and relative is None else actions)
    names = policy.field('action_feature_names', list, [])
    run = policy.fields.get('n_action_steps')
    notes = (FEWER_NOTE.format(run),) if isinstance(run, int) and run < config.horizon else ()
    return PolicyFolder(policy.folder, 'lerobot', config, processing, policy.cameras,
                        policy.renamed, fewest, wanted, begin, tuple(map(str, names)), notes)


def check_numbers(config: Any, path: Path) -> None:
    """Raise CheckpointError where numbers of a config.json cannot be those of a policy."""
    for what, number, most in (
            ('cameras of input_features', config.cameras, 16),
            ('steps of a chunk', config.horizon, 10_000), ('denoising steps', config.steps, 1000),
            ('tokens of a prompt', config.prompt_tokens, 4096)):
        if not 1 <= number <= most:
            raise CheckpointError(f'{path}: {what}: {number}, must be from 1 to {most}')
    if not 0 < config.shortest_period < config.longest_period:
        raise CheckpointError(f'{path}: min_period is {config.shortest_period} and max_period '
                              f'{config.longest_period}: must be above 0, and the latter larger')


def read_sizes(folder: Path, keys: KeyTable, config: Any,
               sized: Callable[[Any, Shapes], Any]) -> Any:
    """Return config with the sizes of a folder's tensors; sized takes these from their shapes."""
    with open_shards(folder) as shards:
        shapes = {name: shards.shapes[key] for name, key in keys.pairs(shards.keys)}
        try:
            return sized(config, shapes)
        except (LookupError, ValueError, ZeroDivisionError) as error:
            raise CheckpointError(
                f'{shards.place} does not fit the model: {error} is missing or has another shape '
                f'than in any {config.architecture}') from error
