# SPDX-License-Identifier: Apache-2.0
"""What a loaded model takes, and how it is let go. Knows no architecture, and no device."""

from collections.abc import Iterator

from torch import nn

from robion_ros.models.protocol import Model


def weight_bytes(model: Model) -> int:
    """Return the size of a model's weights, on whatever device they are."""
    return sum({weight.data_ptr(): weight.nbytes for network in _networks(model)
                for weight in network.parameters()}.values())


def release(model: Model) -> None:
    """
    Let a model that runs no more be freed as soon as nobody holds it.

    A compiled layer holds itself by its forward, and only a collection of garbage, which stops
    every thread, would find that.
    """
    for network in _networks(model):
        for layer in network.modules():
            vars(layer).pop('forward', None)


def _networks(model: Model) -> Iterator[nn.Module]:
    return (part for part in vars(model).values() if isinstance(part, nn.Module))
