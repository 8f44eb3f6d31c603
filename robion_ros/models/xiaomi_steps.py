# SPDX-License-Identifier: Apache-2.0
"""
What every denoising step of Xiaomi-Robotics-0 needs of a request, computed once.

Knows nothing of who counts the steps.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
import torch.nn.functional as F

from robion_ros.models.protocol import Tensors

if TYPE_CHECKING:
    from robion_ros.models.xiaomi import Xiaomi


def begin(model: 'Xiaomi', context: Tensors) -> Tensors:
    """
    Return what every step of some requests needs of their context.

    cos and sin [B, 1, T, D], the turn of the sink, the state and the actions; first [B, 2, W],
    the first two; cache [B, layers, 2, H, K, D], of whose K tokens the last T are left empty for
    them; and mask [B, 1, T, K].
    """
    net, cache, valid = model.network, context['cache'], context['valid']
    own = len(model.own_places)
    places = (context['next'][:, None] + model.own_places)[:, None].expand(-1, 3, -1)
    cos, sin = model.turn(places)
    state = net.state_projector(context['state'])[:, None]
    first = torch.cat((net.sink.weight.expand(len(state), 1, -1), state), 1)
    # Tokens that nobody sees make the number of keys a multiple of eight.
    spare = -(valid.shape[1] + own) % 8
    cache = F.pad(cache, (0, 0, spare, own))
    return {'cache': cache, 'mask': mask_of(model.own_mask, F.pad(valid, (spare, 0)), cache),
            'cos': cos, 'sin': sin, 'first': first}


def mask_of(own: Tensor, valid: Tensor, cache: Tensor) -> Tensor:
    """Put which kept tokens exist, bool [B, K'], before the mask of the own, [T, T]."""
    kept = torch.zeros_like(valid, dtype=own.dtype).masked_fill(~valid, -torch.inf)
    kept = kept[:, None].expand(-1, len(own), -1)
    return torch.cat((kept, own.expand(len(kept), -1, -1)), 2)[:, None].to(cache.dtype)
