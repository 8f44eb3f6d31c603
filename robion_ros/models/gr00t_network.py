# SPDX-License-Identifier: Apache-2.0
"""
The weights of GR00T N1.5, and which of them may be rounded. Knows neither stages nor files.

A checkpoint holds layers for each kind of robots that were trained together; choose keeps one.
"""

from typing import Any

import torch
from torch import nn

from robion_ros.models import categories, layers
from robion_ros.models.categories import CategoryLinear
from robion_ros.models.dit import AdapterLayer, CrossLayer, SelfLayer, TimeNorm
from robion_ros.models.gr00t_config import Gr00tConfig
from robion_ros.models.qwen3 import Qwen3Layer, qwen_norm

STEP_WIDTH = 256
"""Of the embedding of a step."""


class Gr00tNetwork(nn.Module):
    """SigLIP, the first layers of Qwen3, an adapter, and the diffusion transformer."""

    def __init__(self, c: Gr00tConfig) -> None:
        super().__init__()
        self.vision_tower = layers.VisionTransformer(
            c.image_size, c.patch_size, c.vision_width, c.vision_hidden, c.vision_heads,
            c.vision_layers)
        self.multi_modal_projector = nn.Linear(c.vision_width, c.width)
        self.embed_tokens = nn.Embedding(c.vocabulary, c.width)
        self.language_model = nn.ModuleList(
            Qwen3Layer(c.width, c.hidden, c.heads, c.kv_heads, c.head_size)
            for _ in range(c.layers))
        self.norm = qwen_norm(c.width)
        self.vlln = nn.LayerNorm(c.width)
        self.adapter = nn.ModuleList(AdapterLayer(c.width, c.adapter_heads)
                                     for _ in range(c.adapter_layers))
        expert = c.expert_width
        self.time_in = nn.Linear(STEP_WIDTH, expert)
        self.time_out = nn.Linear(expert, expert)
        self.future_tokens = nn.Embedding(c.future_tokens, expert)
        self.position_embedding = nn.Embedding(c.places, expert)
        self.expert: Any = nn.ModuleList(
            SelfLayer(expert, c.expert_heads) if index % 2 else
            CrossLayer(expert, c.width, c.expert_heads) for index in range(c.expert_layers))
        self.proj_out_1 = nn.Linear(expert, 2 * expert)
        self.proj_out_2 = nn.Linear(expert, c.expert_output)

        def own(**sizes: tuple[int, int]) -> Any:
            return nn.ModuleDict({name: CategoryLinear(c.embodiments, *size)
                                  for name, size in sizes.items()})
        hidden = c.expert_output
        self.state_encoder = own(layer1=(c.padded_state, hidden), layer2=(hidden, expert))
        self.action_encoder = own(W1=(c.padded_action, expert), W2=(2 * expert, expert),
                                  W3=(expert, expert))
        self.action_decoder = own(layer1=(hidden, hidden), layer2=(hidden, c.padded_action))

    def to_layers_dtype(self, dtype: torch.dtype) -> 'Gr00tNetwork':
        """Give the layers a dtype; norms, embeddings of patches and the ends stay float32."""
        tower = self.vision_tower
        for part in (tower.layers, tower.post_layernorm, self.multi_modal_projector,
                     self.embed_tokens, self.language_model, self.vlln, self.adapter,
                     self.expert, self.action_encoder['W3']):
            part.to(dtype)
        for module in self.modules():
            if isinstance(module, layers.PreciseNorm | TimeNorm):
                module.float()
        return self

    def choose(self, embodiment: int) -> 'Gr00tNetwork':
        """Keep, of the layers of the kinds of robots, those of one kind."""
        categories.choose(self, embodiment)
        return self
