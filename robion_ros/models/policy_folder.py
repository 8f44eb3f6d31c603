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

from robion_ros.config import ModelConfig
from robion_ros.models.adapter import open_weights
from robion_ros.models.cameras import place_cameras
from robion_ros.models.description import Description
from robion_ros.models.folder import CheckpointError
from robion_ros.models.key_table import KeyTable
from robion_ros.models.layouts import Layout
from robion_ros.models.lerobot_folder import ACTION, Policy, STATE
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.processing import IDENTITY, Scaling, Span, Units
from robion_ros.models.tokenizer import Tokenizer
from robion_ros.models.tokenizer_files import BEGIN, open_tokenizer

KINDS = {Scaling: 'scaled by mean and deviation', Span: 'scaled from a range to -1 ... 1'}
UNSCALED = 'not scaled: there are no statistics'
UNSCALED_NOTE = ('without statistics states and actions pass as they are, as in a base model '
                 'that was not fine-tuned for a robot')
FEWER_NOTE = ('lerobot runs the first {} steps of a chunk before it asks again; here a chunk '
              'holds all, and a robot asks at its rate')

Shapes = Mapping[str, Sequence[int]]
"""Of tensors, by the names of a model's weights."""


@dataclass(frozen=True)
class PolicyFolder:
    """What a checkpoint folder says of a policy, before a robot is known."""

    path: Path
    layout: Layout
    config: Any
    """With as many cameras, states and actions as the policy has places for."""
    processing: PolicyProcessing
    """Without tokenizer and units, and with cameras in the policy's order."""
    state: Units
    actions: Units
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
    step_duration: float | None = None
    """No such folder says it."""

    def tokenizer(self, configured: str) -> Tokenizer:
        """Open the tokenizer."""
        return open_tokenizer(self.path, configured, self.wanted, self.config.vocabulary,
                              (self.begin,) if self.begin else ())

    def describe(self, tokenizer: str | None, problems: tuple[str, ...]) -> Description:
        """Say what the folder holds; tokenizer is its file, problems are those of the rest."""
        c = self.config
        units = [KINDS[type(units)] if units is not IDENTITY else UNSCALED
                 for units in (self.state, self.actions)]
        if self.processing.relative is not None:
            units[1] += ', relative to the state'
        sizes = [most if words == UNSCALED else least for least, most, words in
                 zip(self.fewest, (c.state_size, c.action_size), units, strict=True)]
        notes = self.notes + (UNSCALED_NOTE,) * (UNSCALED in units)
        return Description(
            c.architecture, self.layout, self.cameras, len(self.cameras), sizes[0], sizes[1],
            self.action_names, c.horizon, c.steps, self.step_duration, c.image_size,
            c.prompt_tokens, units[0], units[1], tokenizer, notes, problems)

    def serve(self, model: ModelConfig, step_duration: float) -> PolicyProcessing:
        """Return the processing for the robots of a factory file."""
        order = place_cameras(model.cameras, self.cameras, self.renamed, self.path)
        # Nothing but zeros stands where a robot may have fewer values.
        states, actions = (max(least, min(given, most)) for least, given, most in zip(
            self.fewest, (len(model.joints), len(model.action_names)),
            (self.config.state_size, self.config.action_size), strict=True))
        config = replace(self.config, cameras=len(order), step_duration=step_duration,
                         state_size=states, action_size=actions)
        return replace(
            self.processing, config=config, tokenizer=self.tokenizer(model.tokenizer), order=order,
            state=self.state.cut(states), actions=self.actions.cut(actions))


def from_lerobot(policy: Policy, sizes: Any, processing: PolicyProcessing, wanted: str,
                 resolution: str, steps: str, begin: str = BEGIN) -> PolicyFolder:
    """
    Return what lerobot's folder says of a policy, of which the weights tell the sizes.

    resolution and steps are what config.json calls the size of pictures and the number of
    denoising steps.
    """
    path, read, square = policy.fields.path, policy.fields.read, [sizes.image_size] * 2
    found = read(resolution, list, square)
    if found != square:
        raise CheckpointError(f'{path}: {resolution} is {found}, the weights are for {square}')
    states, actions = policy.size(STATE), policy.size(ACTION)
    if max(states, actions) > sizes.padded_size:
        raise CheckpointError(f'{path}: a state has {states} and an action {actions} values, the '
                              f'weights take at most {sizes.padded_size}')
    config = replace(
        sizes, cameras=len(policy.cameras), state_size=states, action_size=actions,
        horizon=read('chunk_size', int, sizes.horizon), steps=read(steps, int, sizes.steps),
        prompt_tokens=read('tokenizer_max_length', int, sizes.prompt_tokens),
        shortest_period=read('min_period', float, sizes.shortest_period),
        longest_period=read('max_period', float, sizes.longest_period))
    check_numbers(config, path)
    relative = policy.relative(actions)
    if relative is not None and states < actions:
        raise CheckpointError(f'{policy.folder}: actions are relative to the state, and there are '
                              f'{actions} of them for {states} states')
    of_state, of_actions = policy.units(STATE), policy.units(ACTION)
    fewest = (1 if of_state is IDENTITY else states,
              1 if of_actions is IDENTITY and relative is None else actions)
    names = read('action_feature_names', list, [])
    run = policy.fields.values.get('n_action_steps')
    notes = (FEWER_NOTE.format(run),) if isinstance(run, int) and run < config.horizon else ()
    return PolicyFolder(
        policy.folder, 'lerobot', config, replace(processing, config=config, relative=relative),
        of_state, of_actions, policy.cameras, policy.renamed, fewest, wanted, begin,
        tuple(map(str, names)), notes)


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
    with open_weights(folder) as shards:
        shapes = AskedShapes({name: shards.shapes[key] for name, key in keys.pairs(shards.keys)})
        try:
            return sized(config, shapes)
        except (LookupError, ValueError, ZeroDivisionError) as error:
            name = error.args[0] if isinstance(error, KeyError) else shapes.asked
            raise CheckpointError(
                f'{shards.place} does not fit the model: {name!r} is missing or has another shape '
                f'than in any {config.architecture}') from error


class AskedShapes(dict[str, tuple[int, ...]]):
    """Shapes by the names of tensors, and which was asked for last."""

    asked = ''

    def __getitem__(self, name: str) -> tuple[int, ...]:
        """Return a shape, as a dict does."""
        self.asked = name
        return super().__getitem__(name)
