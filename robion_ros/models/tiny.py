# SPDX-License-Identifier: Apache-2.0
"""
A small Vision-Language-Action model in the shape of pi0, for demonstration and tests.

One vision transformer sees every camera; a prefix language model reads image and prompt tokens,
all of which see each other; an action expert of narrower layers attends to the language model's
keys and values, layer by layer, and turns noise into actions in a fixed number of steps.
Knows neither queues nor streams.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.config import check_range, FieldError, ModelConfig
from robion_ros.core import Observation
from robion_ros.models import checkpoint, layers, processing
from robion_ros.models.description import Description, misfits
from robion_ros.models.hub import locate
from robion_ros.models.protocol import ModelSpec, Tensors
from robion_ros.models.rotary import positions, Rotary, rotary
from robion_ros.models.tokenizer import byte_tokens, PADDING, VOCABULARY


@dataclass(frozen=True)
class TinyConfig:
    """Sizes and statistics, as they stand in config.json."""

    cameras: int
    state_mean: tuple[float, ...]
    """Of each joint, in the robot's units, as are the three below."""
    state_std: tuple[float, ...]
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    step_duration: float = 0.05
    horizon: int = 10
    steps: int = 10
    """Of denoising."""
    padded_size: int = 32
    """Values of a state or action inside the model; zeros fill up those of the robot."""
    prompt_tokens: int = 64
    image_size: int = 64
    patch_size: int = 16
    vision_width: int = 96
    vision_hidden: int = 192
    vision_heads: int = 3
    vision_layers: int = 3
    width: int = 128
    hidden: int = 384
    expert_width: int = 64
    expert_hidden: int = 192
    layers: int = 3
    heads: int = 4
    kv_heads: int = 1
    head_size: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int):
                check_range(field.name, value, 1, 2**20)
        check_range('step_duration', self.step_duration, 0.001, 60)
        for whole, part in (('image_size', 'patch_size'), ('vision_width', 'vision_heads'),
                            ('heads', 'kv_heads')):
            if getattr(self, whole) % getattr(self, part):
                raise FieldError(whole, f'is {getattr(self, whole)}, must be a multiple of '
                                        f'{part}, {getattr(self, part)}')
        for even in ('head_size', 'expert_width'):
            if getattr(self, even) % 2:
                raise FieldError(even, f'is {getattr(self, even)}, must be even')
        self._check_statistics('state', self.state_mean, self.state_std)
        self._check_statistics('action', self.action_mean, self.action_std)

    def _check_statistics(self, what: str, mean: tuple[float, ...],
                          std: tuple[float, ...]) -> None:
        if not len(mean) == len(std) > 0:
            raise FieldError(f'{what}_mean', f'has {len(mean)} values and {what}_std {len(std)}, '
                                             'must be the same number and at least one')
        check_range('padded_size', self.padded_size, len(mean), 2**20)
        for index in range(len(mean)):
            check_range(f'{what}_mean[{index}]', mean[index], -1e9, 1e9)
            check_range(f'{what}_std[{index}]', std[index], 1e-9, 1e9)

    @property
    def sizes(self) -> 'TinyConfig':
        """What the time of a request depends on, and more."""
        return self

    @property
    def spec(self) -> ModelSpec:
        """The model's interface to a robot."""
        return ModelSpec('tiny', self.cameras, len(self.state_mean), self.horizon,
                         len(self.action_mean), self.step_duration)


class TinyNetwork(nn.Module):
    """The weights of the model."""

    def __init__(self, c: TinyConfig) -> None:
        super().__init__()
        self.vision_tower = layers.VisionTransformer(
            c.image_size, c.patch_size, c.vision_width, c.vision_hidden, c.vision_heads,
            c.vision_layers)
        self.multi_modal_projector = nn.Linear(c.vision_width, c.width)
        self.embed_tokens = nn.Embedding(VOCABULARY, c.width)
        self.language_model = nn.ModuleList(
            layers.DecoderLayer(c.width, c.hidden, c.heads, c.kv_heads, c.head_size)
            for _ in range(c.layers))
        self.state_proj = nn.Linear(c.padded_size, c.expert_width)
        self.action_in_proj = nn.Linear(c.padded_size, c.expert_width)
        self.action_time_mlp_in = nn.Linear(2 * c.expert_width, c.expert_width)
        self.action_time_mlp_out = nn.Linear(c.expert_width, c.expert_width)
        self.expert = nn.ModuleList(
            layers.DecoderLayer(c.expert_width, c.expert_hidden, c.heads, c.kv_heads, c.head_size)
            for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.expert_width, eps=1e-6)
        self.action_out_proj = nn.Linear(c.expert_width, c.padded_size)


class Tiny:
    """The model in two stages; protocol.Model says what each function is for."""

    def __init__(self, config: TinyConfig, network: TinyNetwork) -> None:
        self.config, self.network, self.spec = config, network, config.spec
        self.state_scaling = processing.Scaling(config.state_mean, config.state_std)
        self.action_scaling = processing.Scaling(config.action_mean, config.action_std)
        self.tokens = lru_cache(maxsize=1024)(partial(prompt_tokens, size=config.prompt_tokens))
        # The time's part of the layer that mixes it into the actions is the same in every
        # request: it becomes one bias for each step.
        mix = network.action_time_mlp_in
        self.mix_actions, mix_times = mix.weight.chunk(2, 1)
        times = [1 - step / config.steps for step in range(config.steps)]
        embedded = layers.time_embedding(times, config.expert_width).to(mix.weight)
        self.times = F.linear(embedded, mix_times, mix.bias)

    def preprocess(self, observation: Observation) -> Tensors:
        """Turn one observation into the VLM stage's inputs, without the batch axis."""
        processing.check_observation(observation, self.spec)
        images = [processing.resize_with_pad(image, self.config.image_size)
                  for image in observation.images]
        tokens, token_mask = self.tokens(observation.prompt)
        state = self.state_scaling.apply(observation.state)
        return {'images': torch.from_numpy(np.stack(images)),
                'image_mask': torch.ones(len(images), dtype=torch.bool),
                'tokens': tokens, 'token_mask': token_mask,
                'state': processing.pad_values(state, self.config.padded_size)}

    @torch.inference_mode()
    def vlm(self, inputs: Tensors) -> Tensors:
        """
        Read prefix and state.

        Returns cache [B, layers, 2, G, K, D], keys and values of every layer, of which those of
        the K = prefix + 1 tokens that exist are marked in valid, bool [B, K].
        """
        net = self.network
        images = inputs['images'].float() / 127.5 - 1
        seen = net.multi_modal_projector(net.vision_tower(images.flatten(0, 1)))
        seen = seen.unflatten(0, images.shape[:2])
        words = net.embed_tokens(inputs['tokens']) * math.sqrt(self.config.width)
        prefix = torch.cat((seen.flatten(1, 2), words), 1)
        seen_valid = inputs['image_mask'][..., None].expand(seen.shape[:3]).flatten(1)
        valid = torch.cat((seen_valid, inputs['token_mask']), 1)
        past = layers.keys_values(net.language_model, prefix, self.turn(positions(valid)),
                                  layers.attention_mask(valid, prefix.dtype))

        # The state's token sees no actions, so that it does not change from step to step.
        state = net.state_proj(inputs['state'])[:, None]
        valid = F.pad(valid, (0, 1), value=True)
        own = layers.keys_values(net.expert, state, self.turn(positions(valid)[:, -1:]),
                                 layers.attention_mask(valid, state.dtype), past)
        return {'cache': torch.cat((past, own), 4), 'valid': valid}

    @torch.inference_mode()
    def adit(self, context: Tensors, noise: Tensor) -> Tensor:
        """Integrate the velocity from time 1, noise, to time 0, actions."""
        horizon = self.config.horizon
        valid = F.pad(context['valid'], (0, horizon), value=True)
        turn = self.turn(positions(valid)[:, -horizon:])
        mask = layers.attention_mask(valid, noise.dtype)
        past = context['cache'].unbind(1)
        actions = noise
        for time in self.times:
            velocity = self.velocity(actions, time, turn, mask, past)
            actions = actions - velocity / self.config.steps
        return actions

    @property
    def denoising_steps(self) -> int:
        """How many steps lead from noise to actions."""
        return self.config.steps

    @torch.inference_mode()
    def adit_begin(self, context: Tensors) -> Tensors:
        """Turn a context into what every step needs."""
        horizon = self.config.horizon
        valid = F.pad(context['valid'], (0, horizon), value=True)
        cos, sin = self.turn(positions(valid)[:, -horizon:])
        return {'cache': context['cache'], 'cos': cos, 'sin': sin,
                'mask': layers.attention_mask(valid, context['cache'].dtype)}

    @torch.inference_mode()
    def adit_step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps [B]."""
        times = self.times.index_select(0, steps)[:, None]
        velocity = self.velocity(actions, times, (begun['cos'], begun['sin']), begun['mask'],
                                 begun['cache'].unbind(1))
        return actions - velocity / self.config.steps

    def velocity(self, actions: Tensor, time: Tensor, turn: Rotary, mask: Tensor,
                 past: Sequence[Tensor]) -> Tensor:
        """Run the action expert once: where actions [B, T, A'] move at a time."""
        net = self.network
        x = F.linear(net.action_in_proj(actions), self.mix_actions) + time
        x = net.action_time_mlp_out(F.silu(x))
        for layer, before in zip(net.expert, past, strict=True):
            x, _ = layer(x, turn, mask, before)
        return net.action_out_proj(net.norm(x))

    def turn(self, places: Tensor) -> Rotary:
        """Return the rotation of tokens at places [B, T]."""
        return rotary(places, self.config.head_size)

    def noise(self, seeds: Sequence[int]) -> Tensor:
        """Draw the noise [B, T, A'] of a batch on the CPU, row i from seeds[i] alone."""
        return layers.draw_noise(seeds, self.config.horizon, self.config.padded_size)

    def postprocess(self, actions: Tensor, observation: Observation) -> np.ndarray:
        """Turn one row [T, A'] into float32 [T, A] in the robot's units."""
        return self.action_scaling.invert(actions.numpy(force=True)[:, :self.spec.action_size])

    def save(self, folder: Path) -> None:
        """Write the model as a checkpoint."""
        config = {'architecture': 'tiny', **asdict(self.config)}
        checkpoint.save(folder, config, checkpoint.named_weights(self.network))


def prompt_tokens(prompt: str, size: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of an instruction, worded as pi0's are, and which of them are real."""
    text = prompt.strip().replace('_', ' ')
    return processing.pad_tokens(byte_tokens(f'{text}\n'), size, PADDING)


def configure(model: ModelConfig) -> TinyConfig:
    """Read the checkpoint's configuration, or make one up for the model."""
    if model.checkpoint:
        config = checkpoint.read_config(locate(model.checkpoint), TinyConfig, 'tiny')
        return replace(config, step_duration=model.step_duration or config.step_duration)
    joints, actions = len(model.joints), len(model.action_names)
    return TinyConfig(len(model.cameras), (0.0,) * joints, (1.0,) * joints, (0.0,) * actions,
                      (1.0,) * actions, padded_size=max(32, joints, actions),
                      step_duration=model.step_duration or TinyConfig.step_duration)


def blank(config: TinyConfig, device: torch.device) -> TinyNetwork:
    """Return the network as it is on any device, without weights."""
    with torch.device('meta'):
        return TinyNetwork(config).requires_grad_(False)


def load(model: ModelConfig, config: TinyConfig, device: torch.device,
         progress: checkpoint.Progress | None = None) -> Tiny:
    """Build the model on a device with the checkpoint's weights or random ones."""
    network = blank(config, device)
    if model.checkpoint:
        checkpoint.load(locate(model.checkpoint), network, device, progress=progress)
    else:
        layers.randomise(network.to_empty(device=device), model.seed)
    return Tiny(config, network)


def inspect(folder: Path, tokenizer: str = '') -> Description:
    """Say what a checkpoint folder holds, and what it lacks."""
    c = checkpoint.read_config(folder, TinyConfig, 'tiny')
    with torch.device('meta'):
        network = TinyNetwork(c)
    units = 'scaled by mean and deviation'
    return Description(
        'tiny', 'robion_ros', (), c.cameras, len(c.state_mean), len(c.action_mean), (), c.horizon,
        c.steps, c.step_duration, c.image_size, c.prompt_tokens, units, units, '',
        problems=misfits(folder, network))
