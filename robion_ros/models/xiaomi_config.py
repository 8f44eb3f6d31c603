# SPDX-License-Identifier: Apache-2.0
"""
Sizes of Xiaomi-Robotics-0, and what the tensors of its checkpoints are called here.

The full sizes are those of the published models, Qwen3-VL 4B with a diffusion transformer beside
its last 16 layers; the small ones serve demonstrations and tests on a CPU. Knows neither weights
nor files.
"""

from dataclasses import dataclass, replace

from robion_ros.models.key_table import KeyTable
from robion_ros.models.protocol import ModelSpec

OWN = 2
"""Tokens before the actions: a sink and the state."""


@dataclass(frozen=True)
class XiaomiConfig:
    """Sizes of one model."""

    architecture: str
    pictures: tuple[tuple[int, int], ...] = ((256, 256),) * 2
    """Rows and columns of each camera's picture as the network sees it."""
    state_size: int = 32
    """Values of a robot's state and, below, action; zeros fill them up to padded_size."""
    action_size: int = 32
    step_duration: float = 1 / 30
    horizon: int = 30
    steps: int = 5
    """Of denoising."""
    padded_size: int = 32
    prompt_tokens: int = 128
    """Most tokens of the text around the pictures."""
    vocabulary: int = 151_936
    image_token: int = 151_655
    """Stands in texts where a picture is; never in an instruction."""
    patch_size: int = 16
    merge: int = 2
    """Patches along each side of what becomes one token."""
    frames: int = 2
    places: int = 2304
    """Of patches that were embedded in training; pictures of other sizes stretch them."""
    vision_width: int = 1024
    vision_hidden: int = 4096
    vision_heads: int = 16
    vision_layers: int = 24
    taps: tuple[int, ...] = (5, 11, 17)
    """Layers of the tower that also reach the first layers of the language model."""
    width: int = 2560
    hidden: int = 9728
    layers: int = 36
    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    base: float = 5e6
    """Of the rotation of keys."""
    sections: tuple[int, int, int] = (24, 20, 20)
    """Pairs of a head that time, row and column turn."""
    expert_layers: int = 16
    """The last layers of the language model, whose keys and values the ADiT stage reads."""
    time_width: int = 256

    @property
    def expert_width(self) -> int:
        """Return the width of the expert, which has the language model's heads of keys."""
        return self.kv_heads * self.head_size

    @property
    def times(self) -> tuple[float, ...]:
        """Time at each step, from 0, noise, towards 1000."""
        return tuple(1000 * step / self.steps for step in range(self.steps))

    @property
    def grids(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of tokens of each picture."""
        side = self.patch_size * self.merge
        return tuple((rows // side, columns // side) for rows, columns in self.pictures)

    @property
    def picture_tokens(self) -> int:
        """Tokens of all pictures."""
        return sum(rows * columns for rows, columns in self.grids)

    @property
    def prefix_tokens(self) -> int:
        """Tokens of all pictures and the prompt."""
        return self.picture_tokens + self.prompt_tokens

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return ModelSpec(self.architecture, len(self.pictures), self.state_size, self.horizon,
                         self.action_size, self.step_duration)


XIAOMI = XiaomiConfig('xiaomi_robotics_0')
SMALL = replace(
    XIAOMI, architecture='xiaomi_robotics_0_small', pictures=((64, 64),) * 2, horizon=10,
    vocabulary=512, image_token=511, places=36, vision_width=48, vision_hidden=96, vision_heads=3,
    vision_layers=3, taps=(0, 1), width=64, hidden=192, layers=4, heads=4, kv_heads=2,
    head_size=16, sections=(4, 2, 2), expert_layers=3, time_width=32)
CONFIGS = {config.architecture: config for config in (XIAOMI, SMALL)}
"""By the name of the architecture in a factory file."""

KEYS = KeyTable(
    renames={r'vlm\.model\.language_model\.layers\.': 'language_model.',
             r'vlm\.model\.language_model\.embed_tokens\.': 'embed_tokens.',
             r'vlm\.lm_head\.': 'lm_head.',
             r'vlm\.model\.visual\.': 'visual.',
             r'dit\.layers\.': 'expert.'},
    unused=('vlm.model.language_model.norm.',),
    tied={'embed_tokens.weight': 'lm_head.weight'})
"""Of the published checkpoints; without what only writes words."""
