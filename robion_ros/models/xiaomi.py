# SPDX-License-Identifier: Apache-2.0
"""
Xiaomi-Robotics-0: Qwen3-VL reads pictures and prompt, a transformer turns noise into actions.

The VLM stage hands over the keys and values of the language model's last layers alone; the ADiT
stage runs one layer beside each of them on a sink, the state and the actions. Knows neither
queues nor streams, nor what is done to observations and chunks.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.config import ModelConfig
from robion_ros.models import layers, qwen3_vl
from robion_ros.models.family import Family, FamilyModel, without_checkpoint
from robion_ros.models.protocol import Tensors
from robion_ros.models.qwen3 import Qwen3Layer
from robion_ros.models.rotary import Rotary, turned
from robion_ros.models.xiaomi_checkpoint import read_folder
from robion_ros.models.xiaomi_config import CONFIGS, KEYS, OWN, XIAOMI, XiaomiConfig
from robion_ros.models.xiaomi_expert import XiaomiLayer
from robion_ros.models.xiaomi_processing import XiaomiProcessing

KINDS = layers.DecoderLayer, XiaomiLayer, qwen3_vl.VisionBlock
"""Of the layers that run compiled."""


class Projector(nn.Module):
    """Values to tokens, or back."""

    def __init__(self, given: int, wanted: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(given, wanted, bias=False),
                                    nn.GELU(approximate='tanh'),
                                    nn.Linear(wanted, wanted, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Turn x [..., n] into [..., W]."""
        projected: Tensor = self.layers(x)
        return projected


class XiaomiNetwork(nn.Module):
    """The weights of the model."""

    def __init__(self, c: XiaomiConfig) -> None:
        super().__init__()
        wide = c.expert_width
        self.visual = qwen3_vl.VisionTower(
            c.patch_size, c.merge, c.frames, c.places, c.vision_width, c.vision_hidden,
            c.vision_heads, c.vision_layers, c.taps, c.width)
        self.embed_tokens = nn.Embedding(c.vocabulary, c.width)
        self.language_model: Any = nn.ModuleList(
            Qwen3Layer(c.width, c.hidden, c.heads, c.kv_heads, c.head_size)
            for _ in range(c.layers))
        self.expert: Any = nn.ModuleList(
            XiaomiLayer(wide, c.head_size) for _ in range(c.expert_layers))
        self.state_projector = Projector(c.padded_size, wide)
        self.action_projector = Projector(c.padded_size, wide)
        self.action_output_layer = Projector(wide, c.padded_size)
        self.t_embedder = nn.ModuleDict({'mlp': nn.Sequential(
            nn.Linear(c.time_width, wide, bias=False), nn.SiLU(),
            nn.Linear(wide, wide, bias=False))})
        self.t_projector = nn.ModuleDict({'layers': nn.Sequential(nn.Linear(wide, 6 * wide))})
        self.sink = nn.Embedding(1, wide)

    def to_layers_dtype(self, dtype: torch.dtype) -> 'XiaomiNetwork':
        """Give the layers a dtype; norms, embeddings of patches and the ends stay float32."""
        tower = self.visual
        parts: list[nn.Module] = [tower.blocks, tower.merger, tower.deepstack_merger_list,
                                  self.embed_tokens, self.language_model]
        for layer in self.expert:
            parts += layer.children()
        for part in parts:
            part.to(dtype)
        for module in self.modules():
            if isinstance(module, layers.PreciseNorm):
                module.float()
        return self


class Xiaomi(FamilyModel):
    """The model in two stages; protocol.Model says what each function is for."""

    config: XiaomiConfig
    network: XiaomiNetwork
    processing: XiaomiProcessing

    def __init__(self, config: XiaomiConfig, network: XiaomiNetwork,
                 processing: XiaomiProcessing | None = None) -> None:
        super().__init__(network, processing or XiaomiProcessing(config))
        with torch.no_grad():
            self._prepare()

    def _prepare(self) -> None:
        """Compute what depends on the weights, the sizes and the step alone, once."""
        net, c = self.network, self.config
        device = net.embed_tokens.weight.device
        self.kernel = net.visual.kernel()
        self.grids = {size: net.visual.grid(*size) for size in dict.fromkeys(c.pictures)}
        scaling = self.processing.scaling
        self.picture_scale, self.picture_shift = (
            torch.tensor(values, dtype=torch.float32, device=device) for values in scaling)
        self.frequencies = qwen3_vl.frequencies(c.head_size, c.base).to(device)
        self.axes = qwen3_vl.axes(c.sections).to(device)
        self.active = torch.as_tensor(self.processing.active).to(device)
        """float32 [T, A']: 0 for values of an action that the robot does not have."""
        own = c.horizon + OWN
        self.own_places = torch.arange(own, device=device)
        hidden = torch.ones(own, own, dtype=torch.bool, device=device).triu(1)
        self.own_mask = torch.zeros(own, own, device=device).masked_fill(hidden, -torch.inf)
        times = time_embedding(c.times, c.time_width).to(device)
        shared = net.t_projector['layers'](net.t_embedder['mlp'](times))
        tables = torch.stack([layer.adaln_table for layer in net.expert])
        self.norms = shared.unflatten(1, (1, 6, -1)) + tables
        """[steps, layers, 6, W]."""

    @torch.inference_mode()
    def vlm(self, inputs: Tensors) -> Tensors:
        """
        Read the prefix: the tokens of all pictures, then those of the text.

        Returns cache [B, layers, 2, G, K, D], keys and values of the last layers, of which those
        of the tokens that exist are marked in valid, bool [B, K]; next, int64 [B], the place
        behind the last of them; and the state as it came.
        """
        net, c = self.network, self.config
        seen, taps = self.see(inputs)
        order, places = inputs['order'], inputs['places']
        x = torch.cat((seen, net.embed_tokens(inputs['tokens'])), 1)
        turn, mask = self.turn(places), qwen3_vl.causal_mask(order, x.dtype)
        found = []
        for index, layer in enumerate(net.language_model[:-1]):
            x, own = layer(x, turn, mask)
            if index < len(taps):
                # The first tokens are the pictures'.
                x = x + F.pad(taps[index], (0, 0, 0, c.prompt_tokens))
            if index >= c.layers - c.expert_layers:
                found.append(own)
        last = net.language_model[-1]
        # Nobody reads what the last layer would return.
        found.append(last.self_attn.project(last.input_layernorm(x), turn)[1])
        return {'cache': torch.stack(found, 1), 'valid': order < qwen3_vl.ABSENT,
                'next': places.amax((1, 2)) + 1, 'state': inputs['state']}

    def see(self, inputs: Tensors) -> tuple[Tensor, list[Tensor]]:
        """Return the tokens of all pictures [B, S, W], and what each tap adds to them."""
        parts = []
        cameras = range(len(self.config.pictures))
        for size, group in groupby(cameras, lambda camera: self.config.pictures[camera]):
            images = torch.stack([inputs[f'picture_{camera}'] for camera in group], 1)
            pixels = images.flatten(0, 1).float() * self.picture_scale + self.picture_shift
            seen, taps = self.network.visual(pixels, self.kernel, self.grids[size])
            parts.append([tokens.unflatten(0, images.shape[:2]).flatten(1, 2)
                          for tokens in (seen, *taps)])
        seen, *taps = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        return seen, taps

    @torch.inference_mode()
    def adit(self, context: Tensors, noise: Tensor) -> Tensor:
        """Integrate the velocity from time 0, noise, to time 1, actions."""
        begun, actions = self.adit_begin(context), noise
        for norms in self.norms:
            actions = actions + self.velocity(begun, actions, norms) / self.config.steps
        return actions

    @torch.inference_mode()
    def adit_begin(self, context: Tensors) -> Tensors:
        """
        Turn a context into what every step needs.

        cos and sin [B, 1, T, D], the turn of the sink, the state and the actions; first
        [B, 2, W], the first two; cache [B, layers, 2, H, K, D], of whose K tokens the last T are
        left empty for them; and mask [B, 1, T, K].
        """
        net, cache, valid = self.network, context['cache'], context['valid']
        own = len(self.own_places)
        places = (context['next'][:, None] + self.own_places)[:, None].expand(-1, 3, -1)
        cos, sin = self.turn(places)
        state = net.state_projector(context['state'])[:, None]
        first = torch.cat((net.sink.weight.expand(len(state), 1, -1), state), 1)
        # Tokens that nobody sees make the number of keys a multiple of eight.
        spare = -(valid.shape[1] + own) % 8
        cache = F.pad(cache, (0, 0, spare, own))
        return {'cache': cache, 'mask': mask_of(self.own_mask, F.pad(valid, (spare, 0)), cache),
                'cos': cos, 'sin': sin, 'first': first}

    @torch.inference_mode()
    def adit_step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps [B]."""
        # A layer takes norms whose last axis is the width: here [6, B, 1, W], a row's its own.
        norms = self.norms.index_select(0, steps).movedim(0, 2).unsqueeze(-2)
        return actions + self.velocity(begun, actions, norms) / self.config.steps

    def velocity(self, begun: Tensors, actions: Tensor, norms: Tensor) -> Tensor:
        """Run the expert once: where actions [B, T, A'] move at a step."""
        net, mask, turn = self.network, begun['mask'], (begun['cos'], begun['sin'])
        moving = net.action_projector(actions * self.active)
        x = torch.cat((begun['first'], moving), 1).to(mask.dtype)
        for layer, room, norm in zip(net.expert, begun['cache'].unbind(1), norms, strict=True):
            x = layer(x, turn, mask, room, norm)
        found: Tensor = net.action_output_layer(x[:, OWN:].float())
        return found

    def turn(self, places: Tensor) -> Rotary:
        """Return the rotation of tokens at places int64 [B, 3, T] along time, row and column."""
        of_pair = places.index_select(1, self.axes).transpose(1, 2)
        return turned(of_pair * self.frequencies)


def mask_of(own: Tensor, valid: Tensor, cache: Tensor) -> Tensor:
    """Put which kept tokens exist, bool [B, K'], before the mask of the own, [T, T]."""
    kept = torch.zeros_like(valid, dtype=own.dtype).masked_fill(~valid, -torch.inf)
    kept = kept[:, None].expand(-1, len(own), -1)
    return torch.cat((kept, own.expand(len(kept), -1, -1)), 2)[:, None].to(cache.dtype)


def time_embedding(times: Sequence[float], width: int) -> Tensor:
    """Return cosines, then sines, of times with periods to 20,000 pi: [N, W]."""
    half = width // 2
    speeds = torch.exp(-np.log(10_000) * torch.arange(half, dtype=torch.float32) / half)
    angles = torch.tensor(times, dtype=torch.float32)[:, None] * speeds
    # The model has never seen them finer.
    return torch.cat((angles.cos(), angles.sin()), 1).bfloat16().float()


def made_up(model: ModelConfig, config: XiaomiConfig) -> XiaomiProcessing:
    """Return the processing of random weights."""
    return XiaomiProcessing(without_checkpoint(
        model, config, (config.padded_size,) * 2,
        pictures=config.pictures[:1] * len(model.cameras)))


FAMILY = Family(
    configs=CONFIGS, keys={XIAOMI.architecture: KEYS}, network=XiaomiNetwork, compiled=KINDS,
    model=Xiaomi, read_folder=read_folder, made_up=made_up)
configure, blank, load, inspect = FAMILY.configure, FAMILY.blank, FAMILY.load, FAMILY.inspect
