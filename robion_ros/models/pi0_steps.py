# SPDX-License-Identifier: Apache-2.0
"""
One denoising step of pi0 and pi0.5 at a time, each row of a batch at a step of its own.

What a step needs of the tables by step is gathered by row, on the device. Knows nothing of who
counts the steps.
"""

from typing import TYPE_CHECKING

from torch import Tensor
import torch.nn.functional as F

from robion_ros.models import layers
from robion_ros.models.expert import modulated
from robion_ros.models.protocol import Tensors

if TYPE_CHECKING:
    from robion_ros.models.pi0 import Pi0


def begin(model: 'Pi0', context: Tensors) -> Tensors:
    """
    Return what every step of some requests needs of their context.

    cos and sin [B, 1, T, D], the turn of the tokens. For kernels: cache and valid as they came,
    and of pi0 first [B, W], the state's token, which is turned like the others. For layers:
    cache [B, layers, 2, G, K, D], of whose K tokens the last are the actions and the one before
    them the state, and mask [B, 1, 1, K].
    """
    c = model.config
    valid = F.pad(context['valid'], (0, c.own_tokens), value=True)
    turn = model.turn(layers.positions(valid)[:, -c.own_tokens:])
    if model.kernels:
        own = {} if c.adaptive else {'first': model.network.state_proj(context['state'])}
        return {'cache': context['cache'], 'valid': context['valid'], 'cos': turn[0],
                'sin': turn[1], **own}
    # Tokens that nobody sees make the number of keys a multiple of eight.
    spare = -valid.shape[1] % 8
    cache = F.pad(context['cache'], (0, 0, spare, c.own_tokens))
    mask = layers.attention_mask(F.pad(valid, (spare, 0), value=False), cache.dtype)
    if not c.adaptive:
        remember_state(model, context['state'], cache, mask, turn)
    cos, sin = (table[:, :, -c.horizon:] for table in turn)
    return {'cache': cache, 'mask': mask, 'cos': cos, 'sin': sin}


def remember_state(model: 'Pi0', state: Tensor, cache: Tensor, mask: Tensor,
                   turn: layers.Rotary) -> None:
    """Write the keys and values of pi0's state token into cache, before the actions'."""
    actions = model.config.horizon
    x = model.network.state_proj(state)[:, None].to(cache.dtype)
    turn, mask = (turn[0][:, :, :1], turn[1][:, :, :1]), mask[..., :-actions]
    *rooms, last_room = cache[..., :-actions, :].unbind(1)
    *first, last = model.network.expert
    for layer, room, norms in zip(first, rooms, model.norms[0], strict=False):
        x = layer(x, turn, mask, room, norms)
    last.remember(x, turn, last_room, model.norms[0, -1])


def step(model: 'Pi0', begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
    """Move actions [B, T, A'] one step on; steps, int64 [B], says from which each row goes."""
    if model.kernels:
        return model.kernels.step(begun, actions, steps)
    net, cache = model.network, begun['cache']
    x = F.linear(actions, model.mix_actions) + model.mix_times.index_select(0, steps)[:, None]
    x = x.to(cache.dtype) if model.config.adaptive else (
        net.action_time_mlp_out(F.silu(x).to(cache.dtype)))
    # A layer takes norms whose last axis is the width: here [2, 3, B, 1, W], a row's its own.
    norms = model.norms.index_select(0, steps).movedim(0, 3).unsqueeze(-2)
    last = model.last_norms.index_select(0, steps).movedim(0, 1).unsqueeze(-2)
    turn = begun['cos'], begun['sin']
    for layer, room, norm in zip(net.expert, cache.unbind(1), norms, strict=True):
        x = layer(x, turn, begun['mask'], room, norm)
    velocity = net.action_out_proj(modulated(x.float(), last))
    return actions - velocity / model.config.steps
