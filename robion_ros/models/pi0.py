# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5: PaliGemma reads pictures and prompt, an action expert turns noise into actions.

The VLM stage is SigLIP and Gemma up to the keys and values of every layer; the ADiT stage runs
the expert alone: once on pi0's state token, which sees no actions, and once for each step on the
actions, or, with kernels, for each step on both. Knows neither queues nor streams, nor what is
done to observations and chunks.
"""

from collections.abc import Callable, Sequence
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.config import FieldError, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import checkpoint, layers, pi0_steps
from robion_ros.models.description import Description, misfits
from robion_ros.models.expert import AdaptiveNorm, ExpertLayer, GemmaNorm, modulated
from robion_ros.models.network import build, make_blank
from robion_ros.models.pi0_checkpoint import read_folder, read_source
from robion_ros.models.pi0_config import CONFIGS, KEYS, Pi0Config
from robion_ros.models.pi0_kernels import open_kernels, Pi0Kernels
from robion_ros.models.pi0_processing import Pi0Processing
from robion_ros.models.policy_folder import PolicySource, without_checkpoint
from robion_ros.models.policy_processing import PolicyProcessing
from robion_ros.models.protocol import Tensors

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


class Pi0:
    """The model in two stages; protocol.Model says what each function is for."""

    def __init__(self, config: Pi0Config, network: Pi0Network,
                 processing: PolicyProcessing | None = None) -> None:
        self.config, self.network, self.spec = config, network, config.spec
        self.processing = processing or Pi0Processing(config)
        with torch.no_grad():
            self._prepare_times()
        self.kernels: Pi0Kernels | None = None
        """What the ADiT stage runs on instead of the layers, where a GPU can."""

    def _prepare_times(self) -> None:
        """Compute what depends on the step and the weights alone, once."""
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

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        return self.processing.preprocess(observation)

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
        cache = layers.keys_values(net.language_model, prefix, self.turn(layers.positions(valid)),
                                   layers.attention_mask(valid, prefix.dtype))
        own = {} if c.adaptive else {'state': inputs['state']}
        return {'cache': cache, 'valid': valid, **own}

    @torch.inference_mode()
    def adit(self, context: Tensors, noise: Tensor) -> Tensor:
        """Integrate the velocity from time 1, noise, to time 0, actions."""
        begun = self.adit_begin(context)
        if self.kernels:
            return self.kernels.denoise(begun, noise)
        turn, rooms = (begun['cos'], begun['sin']), begun['cache'].unbind(1)
        actions = noise
        for step in range(self.config.steps):
            velocity = self.velocity(actions, step, turn, begun['mask'], rooms)
            actions = actions - velocity / self.config.steps
        return actions

    @property
    def denoising_steps(self) -> int:
        """How many steps lead from noise to actions."""
        return self.config.steps

    @torch.inference_mode()
    def adit_begin(self, context: Tensors) -> Tensors:
        """Turn a context into what every step needs."""
        return pi0_steps.begin(self, context)

    @torch.inference_mode()
    def adit_step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps [B]."""
        return pi0_steps.step(self, begun, actions, steps)

    def velocity(self, actions: Tensor, step: int, turn: layers.Rotary, mask: Tensor,
                 rooms: Sequence[Tensor]) -> Tensor:
        """Run the action expert once: where actions [B, T, A'] move at a step."""
        net = self.network
        x = F.linear(actions, self.mix_actions, self.mix_times[step])
        x = x.to(rooms[0].dtype) if self.config.adaptive else (
            net.action_time_mlp_out(F.silu(x).to(rooms[0].dtype)))
        for layer, room, norms in zip(net.expert, rooms, self.norms[step], strict=True):
            x = layer(x, turn, mask, room, norms)
        return net.action_out_proj(modulated(x.float(), self.last_norms[step]))

    def turn(self, places: Tensor) -> layers.Rotary:
        """Return the rotation of tokens at places [B, T]."""
        return layers.rotary(places, self.config.head_size)

    def noise(self, seeds: Sequence[int]) -> Tensor:
        """Draw the noise [B, T, A'] of a batch on the CPU, row i from seeds[i] alone."""
        return layers.draw_noise(seeds, self.config.horizon, self.config.padded_size)

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        return self.processing.postprocess(actions, observation)


def configure(model: ModelConfig) -> PolicySource:
    """Read what the checkpoint says, or make sizes up for the robots of a model."""
    if model.checkpoint and model.architecture in KEYS:
        return read_source(model)
    if model.checkpoint:
        raise FieldError('checkpoint', f'{model.architecture} is served with random weights '
                                       'alone; leave it out')
    config = without_checkpoint(model, CONFIGS[model.architecture])
    return PolicySource(config, Pi0Processing(config))


def blank(source: PolicySource, device: torch.device) -> Pi0Network:
    """Return the network as it is on a device, without weights."""
    return make_blank(Pi0Network, source.config, device)


def load(model: ModelConfig, source: PolicySource, device: torch.device,
         progress: checkpoint.Progress | None = None) -> Pi0:
    """Build the model on a device: bfloat16 on a GPU, else float32."""
    network = build(Pi0Network, source.config, model, source.folder,
                    KEYS.get(model.architecture), LAYERS, device, progress)
    pi0 = Pi0(source.config, network, source.processing)
    if device.type == 'cuda':
        pi0.kernels = open_kernels(pi0)
    return pi0


def inspect(folder: Path, tokenizer: str = '') -> Description:
    """Say what a checkpoint folder holds, and what it lacks."""
    found = read_folder(folder)
    with torch.device('meta'):
        network = Pi0Network(found.config)
    return found.describe(tokenizer, misfits(folder, network, KEYS[found.config.architecture]))
