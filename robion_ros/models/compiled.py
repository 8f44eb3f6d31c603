# SPDX-License-Identifier: Apache-2.0
"""
Layers compiled for the GPU: their many small kernels become few. Knows no model.

The compiled code is one for all layers of a kind and shape, so that a model of many layers
costs no more than one of a few.
"""

from collections.abc import Iterable
from types import MethodType
from typing import Any

import torch
from torch import nn
import torch._dynamo

SHAPES = 64
"""Most shapes that one layer is compiled for: batch sizes times models."""


def compile_layers(network: nn.Module, kinds: Iterable[type[Any]]) -> None:
    """Let every layer of some kinds run compiled; each shape compiles when first met."""
    # Over its limit dynamo runs a layer uncompiled and says so only in its log.
    torch._dynamo.config.recompile_limit = SHAPES
    for kind in kinds:
        forward = torch.compile(kind.forward, dynamic=False)
        for layer in network.modules():
            if isinstance(layer, kind):
                layer.forward = MethodType(forward, layer)
