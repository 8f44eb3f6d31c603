# SPDX-License-Identifier: Apache-2.0
"""
SmolVLA: SmolVLM2 reads pictures, prompt and state, an action expert turns noise into actions.

The VLM stage is SigLIP and the language model up to the keys and values of every layer, of which
those for the expert's layers that see the prefix alone are projected once more; the ADiT stage
runs the expert alone. Knows neither queues nor streams, nor what is done to observations and
chunks.
"""

from functools import partial
import math
from typing import Any

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.config import ModelConfig
from robion_ros.models import layers, pictures
from robion_ros.models.family import Family, FamilyModel, without_checkpoint
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.protocol import Tensors
from robion_ros.models.rotary import positions, RotaryTable
from robion_ros.models.smolvla_checkpoint import read_folder
from robion_ros.models.smolvla_config import CONFIGS, KEYS, SMOLVLA, SmolvlaConfig
from robion_ros.models.smolvla_expert import JointLayer, PrefixLayer, project_again, projections

LAYERS = layers.DecoderLayer, JointLayer, PrefixLayer
"""Those that run compiled on a GPU."""

llama_norm = partial(layers.PreciseNorm, eps=1e-5)
plain = partial(PolicyProcessing, picture=pictures.plain_at_end)
"""The processing where no checkpoint says more."""


class SmolvlaNetwork(nn.Module):
    """The weights of the model."""

    def __init__(self, c: SmolvlaConfig) -> None:
        super().__init__()
        heads = c.heads, c.kv_heads, c.head_size
        self.shuffle = c.shuffle
        self.vision_tower = layers.VisionTransformer(
            c.image_size, c.patch_size, c.vision_width, c.vision_hidden, c.vision_heads,
            c.vision_layers)
        self.connector = nn.Linear(c.vision_width * c.shuffle ** 2, c.width, bias=False)
        self.embed_tokens = nn.Embedding(c.vocabulary, c.width)
        self.language_model = nn.ModuleList(
            layers.DecoderLayer(c.width, c.hidden, *heads, F.silu, llama_norm)
            for _ in range(c.layers))
        self.state_proj = nn.Linear(c.padded_size, c.width)
        self.expert = nn.ModuleList(
            (JointLayer if index in c.joint else PrefixLayer)(
                c.expert_width, c.expert_hidden, *heads, llama_norm)
            for index in range(c.layers))
        self.norm = llama_norm(c.expert_width)
        self.action_in_proj = nn.Linear(c.padded_size, c.expert_width)
        self.action_time_mlp_in = nn.Linear(2 * c.expert_width, c.expert_width)
        self.action_time_mlp_out = nn.Linear(c.expert_width, c.expert_width)
        self.action_out_proj = nn.Linear(c.expert_width, c.padded_size)

    def to_layers_dtype(self, dtype: torch.dtype) -> 'SmolvlaNetwork':
        """Give the layers a dtype; norms, embeddings of patches and the ends stay float32."""
        tower = self.vision_tower
        for part in (tower.layers, tower.post_layernorm, self.connector, self.embed_tokens,
                     self.language_model, self.expert, self.action_time_mlp_out):
            part.to(dtype)
        for module in self.modules():
            if isinstance(module, layers.PreciseNorm):
                module.float()
        return self

    def see(self, images: Tensor) -> Tensor:
        """Turn pictures [N, S, S, 3] from -1 to 1 into tokens [N, T, W]."""
        patches = self.vision_tower(images)
        side, square = math.isqrt(patches.shape[1]), self.shuffle
        # A token is a square of patches, row by row.
        squares = patches.view(len(images), side // square, square, side // square, square, -1)
        return self.connector(squares.transpose(2, 3).flatten(3).flatten(1, 2))


class Smolvla(FamilyModel):
    """The model in two stages; protocol.Model says what each function is for."""

    config: SmolvlaConfig
    network: SmolvlaNetwork

    def __init__(self, config: SmolvlaConfig, network: SmolvlaNetwork,
                 processing: PolicyProcessing | None = None) -> None:
        super().__init__(network, processing or plain(config))
        with torch.no_grad():
            self._prepare()

    def _prepare(self) -> None:
        """Compute what no request changes, once."""
        net, c = self.network, self.config
        inward, mix = net.action_in_proj, net.action_time_mlp_in
        device = inward.weight.device
        times = layers.time_embedding(c.times, c.expert_width, c.shortest_period,
                                      c.longest_period).to(inward.weight)
        # No activation stands between the projection of the actions and the layer that mixes
        # the time into them: both are one product, and the time's part is a bias.
        of_actions, of_times = mix.weight.chunk(2, 1)
        self.mix_actions = of_actions @ inward.weight
        self.mix_times = F.linear(times, of_times, mix.bias) + of_actions @ inward.bias
        """[steps, W]."""
        scale = torch.tensor(math.sqrt(c.width), dtype=net.connector.weight.dtype, device='cpu')
        self.seen_scale = scale.item()
        """Of pictures: rounded to their type, as lerobot does, while that of words is not."""
        self.again = projections([layer for layer in net.expert if isinstance(layer, PrefixLayer)])
        self.turn = RotaryTable(c.prefix_tokens + c.horizon, c.head_size, device)
        self.own_places = torch.arange(c.horizon, device=device)
        """Of the actions, counted from the end of the prefix."""
        self.first_turn = torch.stack(self.turn(self.own_places[None]))
        """Of actions that are counted from 0."""
        ahead = torch.full((c.horizon, c.horizon), -math.inf, device=device)
        self.ahead = ahead.triu(1).to(self.again.dtype)
        """Hides from an action those after it."""

    def prefix(self, inputs: Tensors) -> tuple[Tensor, Tensor]:
        """Return the tokens of pictures, prompt and state, [B, K, W], and which exist, [B, K]."""
        net: Any = self.network
        images = inputs['images'].float() / 127.5 - 1
        seen = net.see(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        words = net.embed_tokens(inputs['tokens']) * math.sqrt(self.config.width)
        state = net.state_proj(inputs['state'])[:, None].to(words.dtype)
        prefix = torch.cat(((seen * self.seen_scale).flatten(1, 2), words, state), 1)
        seen_valid = inputs['image_mask'][..., None].expand(seen.shape[:3]).flatten(1)
        valid = F.pad(torch.cat((seen_valid, inputs['token_mask']), 1), (0, 1), value=True)
        return prefix, valid

    @torch.inference_mode()
    def vlm(self, inputs: Tensors) -> Tensors:
        """
        Read the prefix, the last token of which is the state.

        Returns keys and values: joint [B, joint layers, 2, G, K, D] of the layers in which
        actions see each other, prefix [B, other layers, 2, G, K, D] as the others want them. In
        both, those of tokens that exist are marked in valid, bool [B, K].
        """
        c = self.config
        prefix, valid = self.prefix(inputs)
        # Tokens that nobody sees make the number of keys a multiple of eight.
        spare = -valid.shape[1] % 8
        prefix, valid = F.pad(prefix, (0, 0, spare, 0)), F.pad(valid, (spare, 0), value=False)
        # The state sees all; neither pictures nor words see the state.
        mask = layers.attention_mask(valid, prefix.dtype)
        others = F.pad(mask[..., :-1], (0, 1), value=-math.inf)
        mask = torch.cat((others.expand(-1, -1, valid.shape[1] - 1, -1), mask), 2)
        cache = layers.keys_values(self.network.language_model, prefix,
                                   self.turn(positions(valid)), mask).unbind(1)
        return {'joint': torch.stack([cache[index] for index in c.joint], 1),
                'prefix': project_again([cache[index] for index in c.crossed], self.again),
                'valid': valid}

    @torch.inference_mode()
    def adit(self, context: Tensors, noise: Tensor) -> Tensor:
        """Integrate the velocity from time 1, noise, to time 0, actions."""
        begun, actions = self.adit_begin(context), noise
        for time in self.mix_times:
            actions = actions - self.velocity(begun, actions, time) / self.config.steps
        return actions

    @torch.inference_mode()
    def adit_begin(self, context: Tensors) -> Tensors:
        """
        Turn a context into what every step needs.

        prefix as it came; joint with room for the actions at the end; the masks of both, and cos
        and sin [B, 1, T, D], the turn of actions that are counted from the prefix.
        """
        horizon, seen = self.config.horizon, context['valid']
        cos, sin = self.turn(seen.sum(1, keepdim=True) + self.own_places)
        spare = -(seen.shape[1] + horizon) % 8
        joint = F.pad(context['joint'], (0, 0, spare, horizon))
        mask = layers.attention_mask(F.pad(seen, (spare, 0), value=False), joint.dtype)
        own = self.ahead.expand(len(seen), 1, -1, -1)
        return {'joint': joint, 'prefix': context['prefix'], 'cos': cos, 'sin': sin,
                'joint_mask': torch.cat((mask.expand(-1, -1, horizon, -1), own), 3),
                'prefix_mask': layers.attention_mask(seen, joint.dtype)}

    @torch.inference_mode()
    def adit_step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps [B]."""
        times = self.mix_times.index_select(0, steps)[:, None]
        return actions - self.velocity(begun, actions, times) / self.config.steps

    def velocity(self, begun: Tensors, actions: Tensor, time: Tensor) -> Tensor:
        """Run the action expert once: where actions [B, T, A'] move; time is of mix_times."""
        net: Any = self.network
        joint, prefix = (iter(begun[name].unbind(1)) for name in ('joint', 'prefix'))
        counted = begun['cos'], begun['sin']
        first = self.first_turn[0], self.first_turn[1]
        x = F.silu(F.linear(actions, self.mix_actions) + time)
        x = net.action_time_mlp_out(x.to(begun['joint'].dtype))
        for layer in net.expert:
            x = (layer(x, counted, begun['joint_mask'], next(joint))
                 if isinstance(layer, JointLayer) else
                 layer(x, first, begun['prefix_mask'], next(prefix)))
        velocity: Tensor = net.action_out_proj(net.norm(x.float()))
        return velocity


def made_up(model: ModelConfig, config: SmolvlaConfig) -> PolicyProcessing:
    """Return the processing of random weights."""
    return plain(without_checkpoint(model, config, (config.padded_size,) * 2,
                                    cameras=len(model.cameras)))


FAMILY = Family(
    configs=CONFIGS, keys={SMOLVLA.architecture: KEYS}, network=SmolvlaNetwork, compiled=LAYERS,
    model=Smolvla, read_folder=read_folder, made_up=made_up)
configure, blank, load, inspect = FAMILY.configure, FAMILY.blank, FAMILY.load, FAMILY.inspect
