# SPDX-License-Identifier: Apache-2.0
"""
Sizes of pi0 and pi0.5, and what the tensors of their checkpoints are called here.

The full sizes are those of the published models, PaliGemma 3B with an action expert of 300 M;
the small ones serve demonstrations and tests on a CPU. Knows neither weights nor files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from robion_ros.models.key_table import KeyTable
from robion_ros.models.protocol import ModelSpec


@dataclass(frozen=True)
class Pi0Config:
    """Sizes of one model."""

    architecture: str
    adaptive: bool
    """pi0.5: the time modulates the expert's norms, and the state is written in the prompt."""
    prompt_tokens: int
    cameras: int = 3
    state_size: int = 32
    """Values of a robot's state and, below, action; zeros fill them up to padded_size."""
    action_size: int = 32
    step_duration: float = 0.02
    horizon: int = 50
    steps: int = 10
    """Of denoising."""
    padded_size: int = 32
    vocabulary: int = 257_152
    image_size: int = 224
    patch_size: int = 14
    vision_width: int = 1152
    vision_hidden: int = 4304
    vision_heads: int = 16
    vision_layers: int = 27
    width: int = 2048
    hidden: int = 16_384
    expert_width: int = 1024
    expert_hidden: int = 4096
    layers: int = 18
    heads: int = 8
    kv_heads: int = 1
    head_size: int = 256
    state_in_prompt: bool = False
    """The state is words of the prompt: pi0.5, but for some of openpi's."""
    shortest_period: float = 4e-3
    """Of the embedding of the time, and below the longest."""
    longest_period: float = 4.0
    times_added_up: bool = False
    """openpi adds the steps up, in float32, to the time; lerobot multiplies."""

    @property
    def times(self) -> tuple[float, ...]:
        """Time at each step, from 1, noise, towards 0: numbers of float32, as in training."""
        change = np.float32(-1 / self.steps)
        found = [np.float32(1 - step / self.steps) for step in range(self.steps)]
        if self.times_added_up:
            found = list(accumulate([np.float32(1), *[change] * (self.steps - 1)]))
        return tuple(map(float, found))

    @property
    def prefix_tokens(self) -> int:
        """Tokens of all pictures and the prompt."""
        return self.cameras * (self.image_size // self.patch_size) ** 2 + self.prompt_tokens

    @property
    def own_tokens(self) -> int:
        """Tokens that the action expert reads: the actions, and before them pi0's state."""
        return self.horizon + (not self.adaptive)

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return ModelSpec(self.architecture, self.cameras, self.state_size, self.horizon,
                         self.action_size, self.step_duration)


def small(config: Pi0Config) -> Pi0Config:
    """Return the small model of a kind."""
    return replace(config, architecture=f'{config.architecture}_small', horizon=10,
                   vocabulary=512, image_size=56, vision_width=48, vision_hidden=96,
                   vision_heads=3, vision_layers=2, width=64, hidden=192, expert_width=32,
                   expert_hidden=96, layers=3, heads=4, head_size=16)


PI0 = Pi0Config('pi0', adaptive=False, prompt_tokens=48)
PI05 = Pi0Config('pi05', adaptive=True, prompt_tokens=200, state_in_prompt=True)
CONFIGS = {config.architecture: config for config in (PI0, PI05, small(PI0), small(PI05))}
"""By the name of the architecture in a factory file."""

RENAMES: Mapping[str, str] = {
    r'paligemma\.model\.vision_tower\.vision_model\.(embeddings|encoder)\.': 'vision_tower.',
    r'paligemma\.model\.vision_tower\.vision_model\.': 'vision_tower.',
    r'paligemma\.model\.multi_modal_projector\.linear\.': 'multi_modal_projector.',
    r'paligemma\.model\.language_model\.layers\.': 'language_model.',
    r'paligemma\.model\.language_model\.embed_tokens\.': 'embed_tokens.',
    r'paligemma\.lm_head\.': 'lm_head.',
    r'gemma_expert\.model\.layers\.': 'expert.',
    r'gemma_expert\.model\.norm\.': 'norm.',
}
UNUSED = ('paligemma.model.language_model.norm.', 'gemma_expert.lm_head.',
          'gemma_expert.model.embed_tokens.')
"""Parts of the checkpoints that serve training alone."""
KEYS = {
    'pi0': KeyTable(('model.', 'paligemma_with_expert.'), RENAMES, {'.out_proj.': '.o_proj.'},
                    UNUSED, {'embed_tokens.weight': 'lm_head.weight'}),
}
# What pi0 was trained with and pi0.5 has no place for.
KEYS['pi05'] = replace(KEYS['pi0'], unused=(*UNUSED, 'state_proj.'))
"""Of lerobot's checkpoints and those that openpi converts to PyTorch."""
