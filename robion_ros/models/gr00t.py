# SPDX-License-Identifier: Apache-2.0
"""
GR00T N1.5: SigLIP and Qwen3 read pictures and prompt, a diffusion transformer makes actions.

The VLM stage goes up to the keys and values that the transformer's layers have of the context,
which no denoising step changes, and the token of the state; the ADiT stage runs the transformer
for each step. Where the source's results depend on the padding of others in a batch, these are
those of a batch of one. Knows neither queues nor streams, nor what is done to observations and
chunks.
"""

from collections.abc import Sequence
import math

import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.config import ModelConfig
from robion_ros.models import layers
from robion_ros.models.dit import (
    action_embedding,
    AdapterLayer,
    CrossLayer,
    modulated,
    SelfLayer,
    step_embedding,
)
from robion_ros.models.family import Family, FamilyModel, without_checkpoint
from robion_ros.models.gr00t_checkpoint import read_folder
from robion_ros.models.gr00t_config import CONFIGS, FULL, Gr00tConfig, KEYS
from robion_ros.models.gr00t_network import Gr00tNetwork, STEP_WIDTH
from robion_ros.models.gr00t_processing import Gr00tProcessing
from robion_ros.models.protocol import Tensors
from robion_ros.models.rotary import positions, RotaryTable

LAYERS = layers.DecoderLayer, AdapterLayer, CrossLayer, SelfLayer
"""What runs compiled on a GPU."""

LAST_EPSILON = 1e-6
"""Of the norm behind the last layer."""


class Gr00t(FamilyModel):
    """The model in two stages; protocol.Model says what each function is for."""

    config: Gr00tConfig
    network: Gr00tNetwork

    def __init__(self, config: Gr00tConfig, network: Gr00tNetwork,
                 processing: Gr00tProcessing | None = None) -> None:
        super().__init__(network, processing or Gr00tProcessing.made_up(config))
        with torch.no_grad():
            self._prepare()

    def _prepare(self) -> None:
        """Compute what no request changes, once."""
        net, c = self.network, self.config
        first, second = net.action_encoder['W1'], net.action_encoder['W2']
        place = first.weight.device
        embedded = step_embedding(c.times, STEP_WIDTH).to(place)
        condition = F.silu(net.time_out(F.silu(net.time_in(embedded))))
        self.norms = torch.stack([layer.norm1.modulation(condition) for layer in net.expert], 1)
        """[steps, layers, 2, W], scale and shift."""
        shifts_first = net.proj_out_1(condition).unflatten(-1, (2, -1))
        self.last_norms = shifts_first.flip(1)
        """[steps, 2, W]."""
        # No activation stands between the projection of the actions and the layer that mixes
        # the time into them, nor between the last two layers of the actions' way out: either
        # pair is one product, and what does not depend on the actions is a bias.
        of_actions, of_times = second.weight.chunk(2, 1)
        times = action_embedding(c.times, c.expert_width).to(place)
        self.mix_actions = of_actions @ first.weight
        self.mix_times = F.linear(times, of_times, second.bias) + of_actions @ first.bias
        out, narrow = net.proj_out_2, net.action_decoder['layer1']
        self.out_weight = narrow.weight @ out.weight
        self.out_bias = F.linear(out.bias, narrow.weight, narrow.bias)
        self.places = net.position_embedding.weight[:c.horizon]
        self.turn = RotaryTable(c.context_tokens, c.head_size, place, c.rotary_base)

    @torch.inference_mode()
    def vlm(self, inputs: Tensors) -> Tensors:
        """
        Read pictures, text and state.

        Returns cache [B, layers, 2, H, K, D], keys and values that every other layer of the
        transformer has of the context's tokens, of which those that exist are marked in valid,
        bool [B, K]; and state [B, 1, W], the token of the state.
        """
        features, valid = self.read(inputs)
        adapted = self.adapt(features, valid)
        cache = torch.stack([layer.self_attn.remember(adapted) for layer in self.network.expert
                             if isinstance(layer, CrossLayer)], 1)
        encoder = self.network.state_encoder
        state = encoder['layer2'](F.relu(encoder['layer1'](inputs['state'])))
        return {'cache': cache, 'valid': valid, 'state': state[:, None].to(cache.dtype)}

    def read(self, inputs: Tensors) -> tuple[Tensor, Tensor]:
        """Return what the language model makes of the context, [B, K, W], and what is valid."""
        net = self.network
        images = inputs['images'].float() / 127.5 - 1
        seen = net.multi_modal_projector(net.vision_tower(images.flatten(0, 1)))
        seen = seen.unflatten(0, images.shape[:2])
        seen_valid = inputs['image_mask'][..., None].expand(seen.shape[:3])
        x = self._interleaved(net.embed_tokens(inputs['tokens']), seen)
        valid = self._interleaved(inputs['token_mask'], seen_valid)
        turn = self.turn(positions(valid))
        hidden = torch.full(x.shape[1:2] * 2, -math.inf, dtype=x.dtype, device=x.device).triu(1)
        mask = layers.attention_mask(valid, x.dtype) + hidden
        for layer in net.language_model:
            x, _ = layer(x, turn, mask)
        return net.norm(x), valid

    def adapt(self, features: Tensor, valid: Tensor) -> Tensor:
        """Return the context [B, K, W] as the transformer attends to it."""
        x, mask = self.network.vlln(features), layers.attention_mask(valid, features.dtype)
        for layer in self.network.adapter:
            x = layer(x, mask)
        return x

    def _interleaved(self, words: Tensor, seen: Tensor) -> Tensor:
        """Put what belongs to pictures [B, V, P, ...] between that of the words [B, T, ...]."""
        before = self.config.text_before
        texts = torch.split(words, [*before, words.shape[1] - sum(before)], 1)
        pairs = zip(texts, (*seen.unbind(1), texts[-1]), strict=True)
        return torch.cat([part for pair in pairs for part in pair][:-1], 1)

    @torch.inference_mode()
    def adit(self, context: Tensors, noise: Tensor) -> Tensor:
        """Integrate the velocity from time 0, noise, to time 1, actions."""
        begun, actions = self.adit_begin(context), noise
        for step in range(self.config.steps):
            velocity = self.velocity(begun, actions, self.mix_times[step], self.norms[step],
                                     self.last_norms[step])
            actions = actions + velocity / self.config.steps
        return actions

    @torch.inference_mode()
    def adit_begin(self, context: Tensors) -> Tensors:
        """Turn a context into what every step needs: own [B, N, W] are the tokens that stay."""
        cache, state = context['cache'], context['state']
        future = self.network.future_tokens.weight.to(cache.dtype).expand(len(state), -1, -1)
        return {'cache': cache, 'mask': layers.attention_mask(context['valid'], cache.dtype),
                'own': torch.cat((state, future), 1)}

    @torch.inference_mode()
    def adit_step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps [B]."""
        # A layer takes norms whose last axis is the width: here [2, B, 1, W], a row's its own.
        norms = self.norms.index_select(0, steps).movedim(0, 2).unsqueeze(-2)
        last = self.last_norms.index_select(0, steps).movedim(0, 1).unsqueeze(-2)
        times = self.mix_times.index_select(0, steps)[:, None]
        return actions + self.velocity(begun, actions, times, norms, last) / self.config.steps

    def velocity(self, begun: Tensors, actions: Tensor, times: Tensor, norms: Tensor,
                 last: Tensor) -> Tensor:
        """Run the transformer once: where actions [B, T, A'] move at a step."""
        net, own, mask = self.network, begun['own'], begun['mask']
        x = F.silu(F.linear(actions, self.mix_actions) + times)
        x = net.action_encoder['W3'](x.to(own.dtype)) + self.places
        x = torch.cat((own, x.to(own.dtype)), 1)
        past = iter(begun['cache'].unbind(1))
        for layer, norm in zip(net.expert, norms, strict=True):
            x = (layer(x, norm, next(past), mask) if isinstance(layer, CrossLayer) else
                 layer(x, norm))
        x = modulated(x[:, -self.config.horizon:].float(), last, LAST_EPSILON)
        return net.action_decoder['layer2'](F.relu(F.linear(x, self.out_weight, self.out_bias)))

    def noise(self, seeds: Sequence[int]) -> Tensor:
        """Draw the noise [B, T, A'] of a batch on the CPU, row i from seeds[i] alone."""
        return layers.draw_noise(seeds, self.config.horizon, self.config.padded_action)


def made_up(model: ModelConfig, config: Gr00tConfig) -> Gr00tProcessing:
    """Return the processing of random weights."""
    most = config.padded_state, config.padded_action
    return Gr00tProcessing.made_up(without_checkpoint(model, config, most,
                                                      cameras=len(model.cameras)))


FAMILY = Family(
    configs=CONFIGS, keys={FULL.architecture: KEYS}, network=Gr00tNetwork, compiled=LAYERS,
    model=Gr00t, read_folder=read_folder, made_up=made_up,
    shape=lambda network, config: network.choose(config.embodiment))
configure, blank, load, inspect = FAMILY.configure, FAMILY.blank, FAMILY.load, FAMILY.inspect
