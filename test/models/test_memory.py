# SPDX-License-Identifier: Apache-2.0
"""What a model takes is counted, and it is let go without a collection of garbage."""

import gc
from types import SimpleNamespace
import weakref

import pytest
from torch import nn

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.models import registry
from robion_ros.models.compiled import compile_layers
from robion_ros.models.memory import release, weight_bytes


@pytest.mark.parametrize('architecture', ['tiny', 'pi0_small', 'gr00t_n1_5_small'])
def test_weights_are_counted_once(architecture: str) -> None:
    model = registry.load(ModelConfig(architecture, {'wrist': CameraConfig()}, ('x', 'y'), 2.0,
                                      1.0, 1), 'cpu')
    whole = sum(weight.nbytes for weight in model.network.parameters())
    assert 0 < weight_bytes(model) <= whole


def test_tied_weights_are_one() -> None:
    layer = nn.Linear(3, 5)
    tied = nn.Linear(3, 5)
    tied.weight = layer.weight
    assert weight_bytes(SimpleNamespace(network=nn.ModuleList((layer, tied)), other=1)) == 4 * (
        15 + 5 + 5)
    assert weight_bytes(SimpleNamespace()) == 0


def test_compiled_layers_let_go_of_themselves() -> None:
    model = SimpleNamespace(network=nn.Sequential(nn.Linear(2, 2)))
    compile_layers(model.network, [nn.Linear])
    seen = weakref.ref(model.network[0])
    gc.collect()
    gc.disable()
    try:
        release(model)
        del model
        assert seen() is None
    finally:
        gc.enable()
