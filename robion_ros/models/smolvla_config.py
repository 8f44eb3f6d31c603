# SPDX-License-Identifier: Apache-2.0
"""
Sizes of SmolVLA, and what the tensors of its checkpoints are called here.

The full sizes are those of the published model: SmolVLM2 500M, of whose language model the first
half is kept, with an action expert of 100 M; the small ones serve demonstrations and tests on a
CPU. Knows neither weights nor files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from robion_ros.models.key_table import KeyTable
from robion_ros.models.protocol import ModelSpec


@dataclass(frozen=True)
class SmolvlaConfig:
    """Sizes of one model."""

    architecture: str = 'smolvla'
    prompt_tokens: int = 48
    cameras: int = 3
    state_size: int = 32
    """Values of a robot's state and, below, action; zeros fill them up to padded_size."""
    action_size: int = 32
    step_duration: float = 1 / 30
    horizon: int = 50
    steps: int = 10
    """Of denoising."""
    padded_size: int = 32
    vocabulary: int = 49_280
    image_size: int = 512
    patch_size: int = 16
    vision_width: int = 768
    vision_hidden: int = 3072
    vision_heads: int = 12
    vision_layers: int = 12
    shuffle: int = 4
    """Patches along each side of the square that becomes one token."""
    width: int = 960
    hidden: int = 2560
    expert_width: int = 720
    expert_hidden: int = 2048
    layers: int = 16
    heads: int = 15
    kv_heads: int = 5
    head_size: int = 64
    joint_every: int = 2
    """Of so many layers of the expert, in the first the actions see each other."""
    shortest_period: float = 4e-3
    """Of the embedding of the time, and below the longest."""
    longest_period: float = 4.0

    @property
    def times(self) -> tuple[float, ...]:
        """Time at each step, from 1, noise, towards 0: numbers of float32, as in training."""
        return tuple(float(np.float32(1 - step * (1 / self.steps))) for step in range(self.steps))

    @property
    def joint(self) -> tuple[int, ...]:
        """Layers in which the actions see each other and the prefix; in the others, it alone."""
        return tuple(range(0, self.layers, self.joint_every))

    @property
    def crossed(self) -> tuple[int, ...]:
        """The other layers."""
        return tuple(sorted(set(range(self.layers)) - set(self.joint)))

    @property
    def prefix_tokens(self) -> int:
        """Tokens of all pictures, the prompt and the state."""
        patches = (self.image_size // self.patch_size) ** 2
        return self.cameras * (patches // self.shuffle ** 2) + self.prompt_tokens + 1

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return ModelSpec(self.architecture, self.cameras, self.state_size, self.horizon,
                         self.action_size, self.step_duration)


SMOLVLA = SmolvlaConfig()
SMALL = replace(
    SMOLVLA, architecture='smolvla_small', horizon=10, vocabulary=512, image_size=64, patch_size=8,
    vision_width=48, vision_hidden=96, vision_heads=3, vision_layers=2, width=64, hidden=192,
    expert_width=48, expert_hidden=128, layers=4, heads=6, kv_heads=2, head_size=16)
CONFIGS = {config.architecture: config for config in (SMOLVLA, SMALL)}
"""By the name of the architecture in a factory file."""

RENAMES: Mapping[str, str] = {
    r'vlm\.model\.vision_model\.(embeddings|encoder)\.': 'vision_tower.',
    r'vlm\.model\.vision_model\.': 'vision_tower.',
    r'vlm\.model\.connector\.modality_projection\.proj\.': 'connector.',
    r'vlm\.model\.text_model\.layers\.': 'language_model.',
    r'vlm\.model\.text_model\.embed_tokens\.': 'embed_tokens.',
    r'vlm\.lm_head\.': 'lm_head.',
    r'lm_expert\.layers\.': 'expert.',
    r'lm_expert\.norm\.': 'norm.',
}
KEYS = KeyTable(('model.', 'vlm_with_expert.'), RENAMES, {'.out_proj.': '.o_proj.'},
                ('vlm.model.text_model.norm.',), {'embed_tokens.weight': 'lm_head.weight'})
"""Of lerobot's checkpoints."""
