# SPDX-License-Identifier: Apache-2.0
"""
The action expert of pi0 and pi0.5 on kernels of its own, where a GPU can run them.

Knows neither prefixes nor observations.
"""

import logging
from typing import Any

import torch
from torch import Tensor

from robion_ros.models import fused
from robion_ros.models.kernels.tiles import CHOICES, for_batch
from robion_ros.models.kernels.weights import Ends, Expert, Norms
from robion_ros.models.protocol import Tensors
from robion_ros.models.room import ROOM

logger = logging.getLogger(__name__)


class Pi0Kernels:
    """
    An expert, and how its calls are cut into blocks.

    Each call takes buffers of its own, so that one may run beside another; those of a captured
    one are its graph's.
    """

    def __init__(self, expert: Expert) -> None:
        # Triton is not everywhere, and compiles for a GPU alone.
        from robion_ros.models.kernels import denoise
        self._kernels = denoise
        self._expert = expert
        for tiles in CHOICES:
            denoise.check(expert, tiles)

    def denoise(self, begun: Tensors, noise: Tensor) -> Tensor:
        """Turn noise [B, T, A'] into actions; begun is what Pi0.adit_begin returns."""
        tiles = for_batch(len(noise), ROOM.get())
        return self._kernels.denoise(self._expert, noise, begun['cache'], begun['valid'],
                                     (begun['cos'], begun['sin']), begun.get('first'),
                                     tiles=tiles)

    def step(self, begun: Tensors, actions: Tensor, steps: Tensor) -> Tensor:
        """Move actions [B, T, A'] one step on, each row from its own of steps, int64 [B]."""
        tiles = for_batch(len(actions), ROOM.get())
        space = self._kernels.workspace(self._expert, len(actions), begun['cos'].shape[2],
                                        begun['cache'].shape[4], tiles)
        run = self._kernels.launch(self._expert, begun['cache'], begun['valid'],
                                   (begun['cos'], begun['sin']), begun.get('first'), space, tiles)
        moving = space.actions[:, -actions.shape[1]:]
        moving.copy_(actions)
        run.step(steps.int(), begun['cache'])
        return moving


def open_kernels(model: Any) -> Pi0Kernels | None:
    """Return the kernels for a Pi0 on a GPU; None, and why in the log, where there are none."""
    try:
        kernels = Pi0Kernels(make_expert(model))
        if not fused.has_room(model.network.action_in_proj.weight.device):
            raise ValueError('they are cut for GPUs on which a block may have '
                             f'{fused.SHARED_MEMORY >> 10} KB of shared memory')
        return kernels
    except (ImportError, AttributeError, ValueError) as error:  # Gluon's names change.
        logger.info('%s: the ADiT stage runs without its kernels, slower: %s',
                    model.config.architecture, error)
        return None


def make_expert(model: Any) -> Expert:
    """Describe the action expert of a Pi0; raise ValueError where kernels cannot take it."""
    net, c = model.network, model.config
    first, last = model.norms.flatten(1, 2), model.last_norms[:, None]
    tables = torch.cat((first, last), 1).float()  # [steps, 2 layers + 1, 3, W]
    scale, shift, gate = (table.contiguous() for table in tables.unbind(2))
    norms = Norms(1 + scale, shift, gate) if c.adaptive else Norms(1 + scale[:1])
    mix = {} if c.adaptive else {'mix': net.action_time_mlp_out.weight,
                                 'mix_bias': net.action_time_mlp_out.bias.float()}
    ends = Ends(model.mix_actions.float().contiguous(), model.mix_times.float().contiguous(),
                net.action_out_proj.weight.float(), net.action_out_proj.bias.float(), **mix)
    return Expert(tuple(net.expert), norms, ends, c.steps)
