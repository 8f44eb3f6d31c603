# SPDX-License-Identifier: Apache-2.0
"""
Layers that have weights of their own for each kind of robot; a server uses those of one kind.

Knows neither robots nor checkpoints.
"""

import torch
from torch import nn


class CategoryLinear(nn.Module):
    """A linear layer for each of several kinds, as a checkpoint holds it."""

    def __init__(self, kinds: int, given: int, found: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.zeros(kinds, given, found))
        self.b = nn.Parameter(torch.zeros(kinds, found))

    def take(self, kind: int) -> nn.Linear:
        """Return the layer of one kind; its weights are a copy."""
        with torch.device('meta'):
            linear = nn.Linear(*self.W.shape[1:])
        linear.weight = nn.Parameter(self.W[kind].T.contiguous(), requires_grad=False)
        linear.bias = nn.Parameter(self.b[kind].clone(), requires_grad=False)
        return linear


def choose(network: nn.Module, kind: int) -> None:
    """Replace every CategoryLinear of a network by the layer of one kind."""
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, CategoryLinear):
                setattr(parent, name, layer.take(kind))
