# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5: PaliGemma reads pictures and prompt, an action expert turns noise into actions.

The VLM stage is SigLIP and Gemma up to the keys and values of every layer; the ADiT stage runs
the expert alone: once on pi0's state token, which sees no actions, and once for each step on the
actions, or, with kernels, for each step on both. Knows neither queues nor streams, nor what is
done to observations and chunks.
"""

from collections.abc import Callable
import math
from typing import Any

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.config import ModelConfig
from robion_ros.models import layers
from robion_ros.models.expert import AdaptiveNorm, ExpertLayer, GemmaNorm, modulated
from robion_ros.models.family import Family, FamilyModel, without_checkpoint
from robion_ros.models.pi0_checkpoint import read_folder
from robion_ros.models.pi0_config import CONFIGS, KEYS, Pi0Config
from robion_ros.models.pi0_kernels import open_kernels, Pi0Kernels
from robion_ros.models.pi0_processing import Pi0Processing
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.protocol import Tensors
from robion_ros.models.rotary import positions, Rotary, RotaryTable

LAYERS = layers.DecoderLayer, ExpertLayer
"""What runs compiled on a GPU."""


class Pi0Network(nn.Module):
    """The weights of the model."""

    def __init__(self, c: Pi0Config) -> None:
        super().__init__()
        self.adaptive = c.adaptive
        norm: Callable[[int], AdaptiveNorm | GemmaNorm] = (AdaptiveNorm if c.adaptive
                                                           else GemmaNorm)
        heads = c.heads, c.kv_heads, c.head_size
        self.vision_tower = layers.VisionTransformer(
            c.image_size, c.patch_size, c.vision_width, c.vision_hidden, c.vision_heads,
            c.vision_layers)
        self.multi_modal_projector = nn.Linear(c.vision_width, c.width)
        self.embed_tokens = nn.Embedding(c.vocabulary, c.width)
        self.language_model = nn.ModuleList(
            layers.DecoderLayer(c.width, c.hidden, *heads, norm=GemmaNorm)
            for _ in range(c.layers))
        self.expert: Any = nn.ModuleList(
            ExpertLayer(c.expert_width, c.expert_hidden, *heads, norm)
            for _ in range(c.layers))
        self.norm = norm(c.expert_width)
        self.action_in_proj = nn.Linear(c.padded_size, c.expert_width)
        self.action_out_proj = nn.Linear(c.expert_width, c.padded_size)
        if c.adaptive:
            self.time_mlp_in = nn.Linear(c.expert_width, c.expert_width)
            self.time_mlp_out = nn.Linear(c.expert_width, c.expert_width)
        else:
            self.state_proj = nn.Linear(c.padded_size, c.expert_width)
            self.action_time_mlp_in = nn.Linear(2 * c.expert_width, c.expert_width)
            self.action_time_mlp_out = nn.Linear(c.expert_width, c.expert_width)

    def to_layers_dtype(self, dtype: torch.dtype) -> 'Pi0Network':
        """Give the layers a dtype; norms, embeddings of patches and the ends stay float32."""
        tower = self.vision_tower
        for part in (tower.layers, tower.post_layernorm, self.multi_modal_projector,
                     self.embed_tokens, self.language_model, self.expert):
            part.to(dtype)
        if not self.adaptive:
            self.action_time_mlp_out.to(dtype)  # What it gives is rounded to it anyway.
        for module in self.modules():
            if isinstance(module, GemmaNorm | AdaptiveNorm):
                module.float()
        return self


class Pi0(FamilyModel):
    """The model in two stages; protocol.Model says what each function is for."""

    config: Pi0Config
    network: Pi0Network

    def __init__(self, config: Pi0Config, network: Pi0Network,
                 processing: PolicyProcessing | None = None) -> None:
        super().__init__(network, processing or Pi0Processing(config))
        with torch.no_grad():
            self._prepare()
        self.kernels: Pi0Kernels | None = None
        """What the ADiT stage runs on instead of the layers, where a GPU can."""

    def _prepare(self) -> None:
        """Compute what no request changes, once."""
        net, c = self.network, self.config
        inward = net.action_in_proj
        times = layers.time_embedding(c.times, c.expert_width, c.shortest_period,
                                      c.longest_period).to(inward.weight)
        if c.adaptive:
            times = F.silu(net.time_mlp_out(F.silu(net.time_mlp_in(times))))
            self.mix_actions = inward.weight
            self.mix_times = inward.bias.expand(c.steps, -1)
        else:
            # No activation stands between the projection of the actions and the layer that
            # mixes the time into them: both are one product, and the time's part is a bias.
            mix = net.action_time_mlp_in
            of_actions, of_times = mix.weight.chunk(2, 1)
            self.mix_actions = of_actions @ inward.weight
            self.mix_times = F.linear(times, of_times, mix.bias) + of_actions @ inward.bias
        self.norms = torch.stack([layer.modulation(times) for layer in net.expert], 1)
        """[steps, layers, 2, 3, W]."""
        self.last_norms = net.norm.modulation(times)
        """[steps, 3, W]."""
        device = inward.weight.device
        self.turn = RotaryTable(c.prefix_tokens + c.own_tokens, c.head_size, device)
        self.own_places = torch.arange(c.own_tokens, device=device)
        """Of the tokens behind the prefix, counted from its end."""

    @torch.inference_mode()
    def vlm(self, inputs: Tensors) -> Tensors:
        """
        Read the prefix.

        Returns cache [B, layers, 2, G, K, D], keys and values of every layer, of which those of
        the tokens that exist are marked in valid, bool [B, K]; and pi0's state as it came.
        """
        net, c = self.network, self.config
        images = inputs['images'].float() / 127.5 - 1
        seen = net.multi_modal_projector(net.vision_tower(images.flatten(0, 1)))
        seen = seen.unflatten(0, images.shape[:2])
        words = net.embed_tokens(inputs['tokens']) * math.sqrt(c.width)
        prefix = torch.cat((seen.flatten(1, 2), words), 1)
        seen_valid = inputs['image_mask'][..., None].expand(seen.shape[:3]).flatten(1)
        valid = torch.cat((seen_valid, inputs['token_mask']), 1)
        cache = layers.keys_values(net.language_model, prefix, self.turn(positions(valid)),
                                   layers.attention_mask(valid, prefix.dtype))
        own = {} if c.adaptive else {'state': inputs['state']}
        return {'cache': cache, 'valid': valid, **own}

    @torch.inference_mode()
    def adit(self, context: Tensors, noise: Tensor) -> Tensor:
        """Integrate the velocity from time 1, noise, to time 0, actions."""
        begun, actions = self.adit_begin(context), noise
        if self.kernels:
            return self.kernels.denoise(begun, noise)
        for step in range(self.config.steps):
            mixed = F.linear(actions, self.mix_actions, self.mix_times[step])
            velocity = self.velocity(begun, mixed, self.norms[step], self.last_norms[step])
            actions = actions - velocity / self.config.steps
        return actions

    @torch.inference_mode()
    def adit_begin(self, context: Tensors) -> Tensors:
        """
        Turn a context into what every step needs.

        cos and sin [B, 1, T, D], the turn of the tokens. For kernels: cache and valid as they
        came, and of pi0 first [B, W], the state's token, which is turned like the others. For
        layers: cache [B, layers, 2, G, K, D], of whose K tokens the last are the actions and the
        one before them the state, and mask [B, 1, 1, K].
        """
        c, valid = self.config, context['valid']
        turn = self.turn(valid.sum(1, keepdim=True) + self.own_places)
        if self.kernels:
            own = {} if c.adaptive else {'first': self.network.state_proj(context['state'])}
            return {'cache': context['cache'], 'valid': valid, 'cos': turn[0], 'sin': turn[1],
                    **own}
        # Tokens that nobody sees make the number of keys a multiple of eight.
        spare = -(valid.shape[1] + c.own_tokens) % 8
        cache = F.pad(context['cache'], (0, 0, spare, c.own_tokens))
        valid = F.pad(F.pad(valid, (spare, 0), value=False), (0, c.own_tokens), value=True)
        mask = layers.attention_mask(valid, cache.dtype)
        if not c.adaptive:
            self.remember_state(context['state'], cache, mask, turn)
        cos, sin = (table[:, :, -c.horizon:] for table in turn)
        return {'cache': cache, 'mask': mask, 'cos': cos, 'sin': sin}

    def remember_state(self, state: Tensor, cache: Tensor, mask: Tensor,
                       turn: Rotary) -> None:
        """Write the keys and values of pi0's state token into cache, before the actions'."""
        actions = self.config.horizon
        x = self.network.state_proj(state)[:, None].to(cache.dtype)
        turn, mask = (turn[0][:, :, :1], turn[1][:, :, :1]), mask[..., :-actions]
        *rooms, last_room = cache[..., :-actions, :].unbind(1)
        *first, last = self.network.expert
        for layer, room, norms in zip(first, rooms, self.norms[0], strict=False):
            x = layer(x, turn, mask, room, norms)
        last.remember(x, turn, last_room, self.norms[0, -1])

    @torch.inference_mode()
    def adit_step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps [B]."""
        if self.kernels:
            return self.kernels.step(begun, actions, steps)
        times = self.mix_times.index_select(0, steps)[:, None]
        mixed = F.linear(actions, self.mix_actions) + times
        # A layer takes norms whose last axis is the width: here [2, 3, B, 1, W], a row's its own.
        norms = self.norms.index_select(0, steps).movedim(0, 3).unsqueeze(-2)
        last = self.last_norms.index_select(0, steps).movedim(0, 1).unsqueeze(-2)
        return actions - self.velocity(begun, mixed, norms, last) / self.config.steps

    def velocity(self, begun: Tensors, x: Tensor, norms: Tensor, last: Tensor) -> Tensor:
        """Run the action expert once on x, actions mixed with the time: where they move."""
        net, cache, turn = self.network, begun['cache'], (begun['cos'], begun['sin'])
        x = x.to(cache.dtype) if self.config.adaptive else (
            net.action_time_mlp_out(F.silu(x).to(cache.dtype)))
        for layer, room, norm in zip(net.expert, cache.unbind(1), norms, strict=True):
            x = layer(x, turn, begun['mask'], room, norm)
        return net.action_out_proj(modulated(x.float(), last))


def open_pi0(config: Pi0Config, network: Pi0Network, processing: PolicyProcessing) -> Pi0:
    """Return the model, on kernels where its device can run them."""
    model = Pi0(config, network, processing)
    if network.action_in_proj.weight.is_cuda:
        model.kernels = open_kernels(model)
    return model


def made_up(model: ModelConfig, config: Pi0Config) -> PolicyProcessing:
    """Return the processing of random weights."""
    return Pi0Processing(without_checkpoint(model, config, (config.padded_size,) * 2,
                                            cameras=len(model.cameras)))


FAMILY = Family(
    configs=CONFIGS, keys=KEYS, network=Pi0Network, compiled=LAYERS, model=open_pi0,
    read_folder=read_folder, made_up=made_up)
configure, blank, load, inspect = FAMILY.configure, FAMILY.blank, FAMILY.load, FAMILY.inspect
