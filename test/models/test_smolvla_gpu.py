# SPDX-License-Identifier: Apache-2.0
"""Layers of the real width give on a GPU, in bfloat16, what they give in float32 on a CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.models import layers
from robion_ros.models.compiled import compile_layers
from robion_ros.models.smolvla import LAYERS, Smolvla, SmolvlaNetwork
from robion_ros.models.smolvla_config import SMOLVLA


def answer(model: Smolvla, observation, device: str) -> np.ndarray:
    inputs = {name: tensor[None].to(device)
              for name, tensor in model.preprocess(observation).items()}
    actions = model.adit(model.vlm(inputs), model.noise([7]).to(device))
    return model.postprocess(actions[0], observation)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no GPU')
@pytest.mark.parametrize('compiled', [False, True], ids=['library', 'compiled'])
def test_layers_of_full_width_are_as_precise(compiled, observe) -> None:
    few = replace(SMOLVLA, layers=4, vision_layers=3, vocabulary=512, cameras=2, state_size=7,
                  action_size=7)
    with torch.device('cuda'):
        network = SmolvlaNetwork(few).requires_grad_(False).to_layers_dtype(torch.bfloat16)
    layers.randomise(network, 1, 'cuda')
    reference = SmolvlaNetwork(few).requires_grad_(False)
    reference.load_state_dict({name: weight.float().cpu()
                               for name, weight in network.state_dict().items()})
    if compiled:
        compile_layers(network, LAYERS)
    difference = np.abs(answer(Smolvla(few, network), observe(), 'cuda')
                        - answer(Smolvla(few, reference), observe(), 'cpu'))
    assert difference.max() < 0.1 and difference.mean() < 0.02
