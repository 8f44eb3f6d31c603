# SPDX-License-Identifier: Apache-2.0
"""
Sizes of GR00T N1.5, and what the tensors of its checkpoints are called here.

The full sizes are those of nvidia/GR00T-N1.5-3B; the small ones serve demonstrations and tests on
a CPU. Knows neither weights nor files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from robion_ros.models.key_table import KeyTable
from robion_ros.models.protocol import ModelSpec

EIGHT = 8
"""Tokens of a context are a multiple of it: so attention kernels want their masks."""


@dataclass(frozen=True)
class Gr00tConfig:
    """Sizes of one model."""

    architecture: str = 'gr00t_n1_5'
    cameras: int = 1
    state_size: int = 64
    """Values of a robot's state and, below, action, in the robot's units."""
    action_size: int = 32
    step_duration: float = 0.05
    horizon: int = 16
    steps: int = 4
    """Of denoising."""
    buckets: int = 1000
    """Into which the time from 0 to 1 is divided."""
    padded_state: int = 64
    """Values that the network takes of a state and, below, gives of an action."""
    padded_action: int = 32
    embodiment: int = 31
    """Which of the kinds of robots that the network was trained for it serves."""
    embodiments: int = 32
    prompt_tokens: int = 72
    """Most tokens of an instruction and what follows it."""
    text_before: tuple[int, ...] = (20,)
    """Tokens of text before each picture, behind the one before."""
    vocabulary: int = 151_680
    image_size: int = 224
    patch_size: int = 14
    vision_width: int = 1152
    vision_hidden: int = 4304
    vision_heads: int = 16
    vision_layers: int = 27
    width: int = 2048
    hidden: int = 6144
    layers: int = 12
    heads: int = 16
    kv_heads: int = 8
    head_size: int = 128
    adapter_layers: int = 4
    adapter_heads: int = 32
    expert_width: int = 1536
    expert_layers: int = 16
    expert_heads: int = 32
    expert_output: int = 1024
    """Width of what the transformer gives, and of the layers of one kind of robots."""
    future_tokens: int = 32
    places: int = 1024
    """Steps of a chunk that could be told apart."""
    rotary_base: float = 1_000_000.0

    @property
    def times(self) -> tuple[int, ...]:
        """Time at each step, from 0, noise, towards the last bucket."""
        return tuple(int(step / self.steps * self.buckets) for step in range(self.steps))

    @property
    def padded_size(self) -> int:
        """Values that the network takes of a state."""
        return self.padded_state

    @property
    def image_tokens(self) -> int:
        """Tokens of a picture."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def text_tokens(self) -> int:
        """Tokens of text, so many that those of the whole context are a multiple of eight."""
        text = sum(self.text_before) + 1 + self.prompt_tokens
        return text + -(text + self.cameras * self.image_tokens) % EIGHT

    @property
    def context_tokens(self) -> int:
        """Tokens of all pictures and the text."""
        return self.text_tokens + self.cameras * self.image_tokens

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return ModelSpec(self.architecture, self.cameras, self.state_size, self.horizon,
                         self.action_size, self.step_duration)


FULL = Gr00tConfig()
SMALL = replace(
    FULL, architecture='gr00t_n1_5_small', horizon=10, padded_state=32, embodiments=2,
    embodiment=0, vocabulary=512, image_size=56, vision_width=48, vision_hidden=96, vision_heads=3,
    vision_layers=2, width=64, hidden=192, layers=3, heads=4, kv_heads=2, head_size=16,
    adapter_layers=2, adapter_heads=4, expert_width=32, expert_layers=4, expert_heads=4,
    expert_output=24, future_tokens=4, places=16)
CONFIGS = {config.architecture: config for config in (FULL, SMALL)}
"""By the name of the architecture in a factory file."""

EAGLE = r'backbone\.eagle_model\.'
RENAMES: Mapping[str, str] = {
    rf'{EAGLE}vision_model\.vision_model\.(embeddings|encoder)\.': 'vision_tower.',
    rf'{EAGLE}vision_model\.vision_model\.': 'vision_tower.',
    rf'{EAGLE}mlp1\.0\.': 'multi_modal_projector.',
    rf'{EAGLE}language_model\.model\.layers\.': 'language_model.',
    rf'{EAGLE}language_model\.model\.': '',
    rf'{EAGLE}language_model\.lm_head\.': 'lm_head.',
    r'action_head\.model\.transformer_blocks\.': 'expert.',
    r'action_head\.model\.timestep_encoder\.timestep_embedder\.linear_1\.': 'time_in.',
    r'action_head\.model\.timestep_encoder\.timestep_embedder\.linear_2\.': 'time_out.',
    r'action_head\.model\.': '',
    r'action_head\.vl_self_attention\.transformer_blocks\.': 'adapter.',
    r'action_head\.': '',
}
EVERYWHERE = {
    '.out_proj.': '.o_proj.', '.attn1.': '.self_attn.', '.to_q.': '.q_proj.',
    '.to_k.': '.k_proj.', '.to_v.': '.v_proj.', '.to_out.0.': '.o_proj.',
    '.ff.net.0.proj.': '.ff.up.', '.ff.net.2.': '.ff.down.'}
UNUSED = ('backbone.eagle_model.vision_model.vision_model.head.',)
"""The pooling head of SigLIP: nothing reads it."""
KEYS = KeyTable(('_groot_model.',), RENAMES, EVERYWHERE, UNUSED,
                {'embed_tokens.weight': 'lm_head.weight'})
"""Of lerobot's checkpoints and those of Isaac-GR00T."""
