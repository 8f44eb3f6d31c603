# SPDX-License-Identifier: Apache-2.0
"""Layers of the real width give on a GPU, in bfloat16, what they give in float32 on a CPU."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from robion_ros.models import layers
from robion_ros.models.compiled import compile_layers
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import PI0, PI05
from robion_ros.models.pi0_kernels import open_kernels
from robion_ros.models.smolvla import LAYERS, Smolvla, SmolvlaNetwork
from robion_ros.models.smolvla_config import SMOLVLA


@dataclass(frozen=True)
class Case:
    """A model of few layers, and what runs it faster than its layers do."""

    full: Any
    layers: int
    network: Callable[[Any], Any]
    model: Callable[[Any, Any], Any]
    hasten: Callable[[Any], None] = lambda model: None


def with_kernels(model: Pi0) -> None:
    model.kernels = open_kernels(model)
    assert model.kernels


def compiled(model: Smolvla) -> None:
    compile_layers(model.network, LAYERS)


CASES = {
    **{f'{full.architecture}-{name}': Case(full, 3, Pi0Network, Pi0, *hasten)
       for full in (PI0, PI05) for name, hasten in (('kernels', [with_kernels]), ('layers', []))},
    'smolvla-library': Case(SMOLVLA, 4, SmolvlaNetwork, Smolvla),
    'smolvla-compiled': Case(SMOLVLA, 4, SmolvlaNetwork, Smolvla, compiled),
}


def answer(model: Any, observation, device: str) -> np.ndarray:
    inputs = {name: tensor[None].to(device)
              for name, tensor in model.preprocess(observation).items()}
    actions = model.adit(model.vlm(inputs), model.noise([7]).to(device))
    return model.postprocess(actions[0], observation)


@pytest.mark.gpu
@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_layers_of_full_width_are_as_precise(case, observe) -> None:
    few = replace(case.full, layers=case.layers, vision_layers=3, vocabulary=512, cameras=2,
                  state_size=7, action_size=7)
    with torch.device('cuda'):
        network = case.network(few).requires_grad_(False).to_layers_dtype(torch.bfloat16)
    layers.randomise(network, 1, 'cuda')
    reference = case.network(few).requires_grad_(False)
    reference.load_state_dict({name: weight.float().cpu()
                               for name, weight in network.state_dict().items()})
    model = case.model(few, network)
    case.hasten(model)
    difference = np.abs(answer(model, observe(), 'cuda')
                        - answer(case.model(few, reference), observe(), 'cpu'))
    assert difference.max() < 0.1 and difference.mean() < 0.02
