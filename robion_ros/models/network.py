# SPDX-License-Identifier: Apache-2.0
"""
Builds the network of a model on a device, from its checkpoint or with random weights.

Knows no architecture.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast, TypeVar

import torch
from torch import nn

from robion_ros.config import ModelConfig
from robion_ros.models import checkpoint, layers
from robion_ros.models.compiled import compile_layers
from robion_ros.models.key_table import KeyTable

N = TypeVar('N', bound=nn.Module)


def make_blank(kind: type[N], sizes: Any, device: torch.device) -> N:
    """Return a kind of network on the meta device, with the types that it has on device."""
    with torch.device('meta'):
        network: Any = kind(sizes).requires_grad_(False)
    network.to_layers_dtype(torch.bfloat16 if device.type == 'cuda' else torch.float32)
    return cast(N, network)


def build(kind: type[N], sizes: Any, model: ModelConfig, folder: Path | None,
          keys: KeyTable | None, compiled: Iterable[type[Any]], device: torch.device,
          progress: checkpoint.Progress | None,
          shape: Callable[[Any], object] = lambda network: None) -> N:
    """
    Return a kind of network of some sizes: its layers bfloat16 on a GPU, else float32.

    Weights are those of the folder, called as keys says, or without one random from the model's
    seed. On a GPU layers of the compiled kinds run compiled. shape keeps, of a network as
    checkpoints hold it, what is served.
    """
    on_gpu = device.type == 'cuda'
    network: Any = make_blank(kind, sizes, device)
    if folder:
        checkpoint.load(folder, network, device, keys, progress)
        shape(network)
    else:
        shape(network)
        layers.randomise(network.to_empty(device=device), model.seed, device if on_gpu else 'cpu')
    if on_gpu:
        compile_layers(network, compiled)
    return network
