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
from dataclasses import replace
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.config import FieldError, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import checkpoint, layers
from robion_ros.models.description import Description, misfits
from robion_ros.models.dit import (
    action_embedding,
    AdapterLayer,
    CrossLayer,
    modulated,
    SelfLayer,
    step_embedding,
)
from robion_ros.models.gr00t_checkpoint import Gr00tSource, read_folder, read_source
from robion_ros.models.gr00t_config import CONFIGS, FULL, Gr00tConfig, KEYS
from robion_ros.models.gr00t_network import Gr00tNetwork, STEP_WIDTH
from robion_ros.models.gr00t_processing import Gr00tProcessing
from robion_ros.models.network import build, make_blank
from robion_ros.models.protocol import Tensors

LAYERS = layers.DecoderLayer, AdapterLayer, CrossLayer, SelfLayer
"""What runs compiled on a GPU."""

LAST_EPSILON = 1e-6
"""Of the norm behind the last layer."""


class Gr00t:
    """The model in two stages; protocol.Model says what each function is for."""

    def __init__(self, config: Gr00tConfig, network: Gr00tNetwork,
                 processing: Gr00tProcessing | None = None) -> None:
        self.processing = processing or Gr00tProcessing.made_up(config)
        self.config = self.processing.config
        self.network, self.spec = network, self.config.spec
        with torch.no_grad():
            self._prepare_times()

    def _prepare_times(self) -> None:
        """Compute what depends on the step and the weights alone, once."""
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

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        return self.processing.preprocess(observation)

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
        net, c = self.network, self.config
        images = inputs['images'].float() / 127.5 - 1
        seen = net.multi_modal_projector(net.vision_tower(images.flatten(0, 1)))
        seen = seen.unflatten(0, images.shape[:2])
        seen_valid = inputs['image_mask'][..., None].expand(seen.shape[:3])
        x = self._interleaved(net.embed_tokens(inputs['tokens']), seen)
        valid = self._interleaved(inputs['token_mask'], seen_valid)
        turn = layers.rotary(layers.positions(valid), c.head_size, c.rotary_base)
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

    @property
    def denoising_steps(self) -> int:
        """How many steps lead from noise to actions."""
        return self.config.steps

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

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        return self.processing.postprocess(actions)


def configure(model: ModelConfig) -> Gr00tSource:
    """Read what the checkpoint says, or make sizes up for the robots of a model."""
    if model.checkpoint and model.architecture == FULL.architecture:
        return read_source(model)
    if model.checkpoint:
        raise FieldError('checkpoint', f'{model.architecture} is served with random weights '
                                       'alone; leave it out')
    config = CONFIGS[model.architecture]
    for field, given, most in (('joints', len(model.joints), config.padded_state),
                               ('actions', len(model.action_names), config.padded_action)):
        if given > most:
            raise FieldError(field, f'are {given}, {model.architecture} takes at most {most}')
    return Gr00tSource(Gr00tProcessing.made_up(replace(
        config, cameras=len(model.cameras), state_size=len(model.joints),
        action_size=len(model.action_names),
        step_duration=model.step_duration or config.step_duration)))


def blank(source: Gr00tSource, device: torch.device) -> Gr00tNetwork:
    """Return the network as it is on a device, without weights."""
    config = source.processing.config
    return make_blank(Gr00tNetwork, config, device).choose(config.embodiment)


def load(model: ModelConfig, source: Gr00tSource, device: torch.device,
         progress: checkpoint.Progress | None = None) -> Gr00t:
    """Build the model on a device: bfloat16 on a GPU, else float32."""
    config = source.processing.config
    network = build(Gr00tNetwork, config, model, source.folder, KEYS, LAYERS, device, progress,
                    lambda network: network.choose(config.embodiment))
    return Gr00t(config, network, source.processing)


def inspect(folder: Path, tokenizer: str = '') -> Description:
    """Say what a checkpoint folder holds, and what it lacks."""
    found = read_folder(folder)
    with torch.device('meta'):
        network = Gr00tNetwork(found.config)
    return found.describe(tokenizer, misfits(folder, network, KEYS))
