# SPDX-License-Identifier: Apache-2.0
"""Action experts of random weights, what their chunks are made of, and the steps in float64."""

import copy
from dataclasses import dataclass
import math

import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models import layers
from robion_ros.models.kernels.weights import Ends, Expert, Norms
from robion_ros.models.rotary import positions, Rotary, rotary


@dataclass(frozen=True)
class Inputs:
    """What a chunk is made of."""

    noise: Tensor
    cache: Tensor
    valid: Tensor
    turn: Rotary
    first: Tensor | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.noise, self.cache, self.valid, *self.turn,
                *(() if self.first is None else (self.first,)))


def decoder_layers(width: int, hidden: int, heads: int, size: int, count: int,
                   kv_heads: int = 1) -> tuple[layers.DecoderLayer, ...]:
    made = []
    for index in range(count):
        layer = layers.DecoderLayer(width, hidden, heads, kv_heads, size).requires_grad_(False)
        layers.randomise(layer, index)
        made.append(layer.bfloat16())
    return tuple(made)


def make_expert(adaptive: bool, width: int = 1024, hidden: int = 4096, heads: int = 8,
                size: int = 256, count: int = 3, actions: int = 32, steps: int = 3,
                device: str = 'cpu') -> Expert:
    torch.manual_seed(1)
    stack = decoder_layers(width, hidden, heads, size, count)
    enter, mix, leave = (nn.Linear(*shape).requires_grad_(False)
                         for shape in ((actions, width), (width, width), (width, actions)))
    for module in (*stack, enter, mix, leave):
        module.to(device)
    rows = 2 * count + 1
    ends = (enter.weight.float(), torch.randn(steps, width, device=device),
            leave.weight.float(), leave.bias.float())
    if adaptive:
        scale, shift, gate = (0.3 * torch.randn(steps, rows, width, device=device)
                              for _ in range(3))
        return Expert(stack, Norms(1 + scale, shift, gate), Ends(*ends), steps)
    norms = Norms(0.7 + 0.6 * torch.rand(1, rows, width, device=device))
    mixed = (torch.randn(width, width, device=device) / math.sqrt(width)).bfloat16()
    return Expert(stack, norms, Ends(*ends, mixed, mix.bias.float()), steps)


def make_inputs(expert: Expert, batch: int, keys: int = 817, horizon: int = 50,
                seed: int = 0) -> Inputs:
    device = expert.ends.enter.device
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator)

    noise = normal(batch, horizon, expert.ends.enter.shape[1])
    cache = normal(batch, len(expert.layers), 2, 1, keys, expert.size).bfloat16()
    valid = torch.rand(batch, keys, device=device, generator=generator) < 0.8
    valid[0, keys // 2:] = False  # whole blocks of keys that do not exist
    first = None if expert.norms.adaptive else normal(batch, expert.width)
    own = horizon + (first is not None)
    places = positions(F.pad(valid, (0, own), value=True))[:, -own:]
    return Inputs(noise, cache, valid, rotary(places, expert.size), first)


def reference(expert: Expert, given: Inputs) -> Tensor:
    """Denoise in float64, layer by layer, as models do."""
    norms, ends, width = expert.norms, expert.ends, expert.width
    stack = [copy.deepcopy(layer).double() for layer in expert.layers]
    own = given.turn[0].shape[2]
    valid = F.pad(given.valid, (0, own), value=True)
    mask = layers.attention_mask(valid, torch.float64).repeat(1, 1, own, 1)
    if given.first is not None:
        mask[:, :, 0, -own + 1:] = -math.inf
    turn = given.turn[0].double(), given.turn[1].double()

    def normalise(x: Tensor, step: int, index: int) -> tuple[Tensor, Tensor | float]:
        y = F.rms_norm(x, (width,), None, expert.eps)
        if norms.shift is None or norms.gate is None:
            return y * norms.scale[0, index], 1.0
        return y * norms.scale[step, index] + norms.shift[step, index], norms.gate[step, index]

    actions = given.noise.double()
    for step in range(expert.steps):
        x = F.linear(actions, ends.enter.double(), ends.enter_bias[step].double())
        if ends.mix is not None and ends.mix_bias is not None:
            x = F.linear(F.silu(x), ends.mix.double(), ends.mix_bias.double())
        if given.first is not None:
            x = torch.cat((given.first[:, None].double(), x), 1)
        for index, layer in enumerate(stack):
            y, gate = normalise(x, step, 2 * index)
            x = x + gate * layer.self_attn(y, turn, mask, given.cache[:, index].double())[0]
            y, gate = normalise(x, step, 2 * index + 1)
            x = x + gate * layer.mlp(y)
        y, _ = normalise(x, step, 2 * len(stack))
        y = y[:, own - given.noise.shape[1]:]
        velocity = F.linear(y, ends.leave.double(), ends.leave_bias.double())
        actions = actions - velocity / expert.steps
    return actions


def error(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return ((found.double() - expected).norm() / expected.norm()).item()
