# SPDX-License-Identifier: Apache-2.0
"""Every architecture that a CPU can run is served like any other."""

import numpy as np
import pytest

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import ActionChunk
from robion_ros.engine.batch import make_ticket, stack
from robion_ros.models import registry


@pytest.mark.parametrize('architecture', [
    'tiny', 'pi0_small', 'pi05_small', 'smolvla_small', 'gr00t_n1_5_small',
    'xiaomi_robotics_0_small'])
def test_model_is_served_in_lockstep(kit, start, architecture: str) -> None:
    config = ModelConfig(architecture, {'wrist': CameraConfig()}, ('x', 'y'), 2.0, 1.0, 1)
    model = registry.load(config, 'cpu')
    robots = {f'robot_{number}': 'm' for number in range(1, 4)}
    engine, outcomes = start({'m': model}, robots)
    requests = [kit.request(number, robot) for number, robot in enumerate(robots, 1)]
    for request in requests:
        engine.submit(request)
    outcomes.wait(3)
    for request in requests:
        chunk = outcomes.of(request.number)
        assert isinstance(chunk, ActionChunk)
        context = model.vlm(stack((make_ticket(model, request, 0.0),)))
        alone = model.adit(context, model.noise([request.seed]))[0]
        np.testing.assert_allclose(chunk.actions, model.postprocess(alone, request.observation),
                                   atol=1e-5)
