# SPDX-License-Identifier: Apache-2.0
"""Layers of the real width give on a GPU, in bfloat16, what they give in float32 on a CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.models import layers
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import PI0, PI05
from robion_ros.models.pi0_kernels import open_kernels


def answer(model: Pi0, observation, device: str) -> np.ndarray:
    inputs = {name: tensor[None].to(device)
              for name, tensor in model.preprocess(observation).items()}
    actions = model.adit(model.vlm(inputs), model.noise([7]).to(device))
    return model.postprocess(actions[0], observation)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no GPU')
@pytest.mark.parametrize('with_kernels', [True, False], ids=['kernels', 'layers'])
@pytest.mark.parametrize('full', [PI0, PI05], ids=lambda full: full.architecture)
def test_layers_of_full_width_are_as_precise(full, with_kernels, observe) -> None:
    few = replace(full, layers=3, vision_layers=3, vocabulary=512, cameras=2, state_size=7,
                  action_size=7)
    with torch.device('cuda'):
        network = Pi0Network(few).requires_grad_(False).to_layers_dtype(torch.bfloat16)
    layers.randomise(network, 1, 'cuda')
    model = Pi0(few, network)
    if with_kernels:
        model.kernels = open_kernels(model)
        assert model.kernels
    reference = Pi0Network(few).requires_grad_(False)
    reference.load_state_dict({name: weight.float().cpu()
                               for name, weight in network.state_dict().items()})
    difference = np.abs(answer(model, observe(), 'cuda')
                        - answer(Pi0(few, reference), observe(), 'cpu'))
    assert difference.max() < 0.1 and difference.mean() < 0.02
