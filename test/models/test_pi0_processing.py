# SPDX-License-Identifier: Apache-2.0
"""Prompts are worded as where the model was trained, and units changed there and back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.core import Observation
from robion_ros.models.pi0_config import CONFIGS
from robion_ros.models.pi0_processing import openpi_words, Pi0Processing
from robion_ros.models.policy_processing import lerobot_words


@pytest.mark.parametrize('prompt, lerobot, openpi', [
    ('pick', 'pick\n', 'pick\n'), ('pick\n', 'pick\n', 'pick\n'),
    (' pick_it up\nnow ', ' pick_it up\nnow \n', 'pick it up now\n'),
])
def test_instructions_of_pi0(prompt, lerobot, openpi):
    assert ''.join(lerobot_words(prompt)) == lerobot
    assert ''.join(openpi_words(prompt)) == openpi
    assert openpi_words(prompt)[-1] == '\n'  # A token of its own.


def processing(kind='pi0_small', **changes) -> Pi0Processing:
    config = replace(CONFIGS[kind], cameras=2, state_size=3, action_size=2, state_in_prompt=False)
    return Pi0Processing(config, **changes)


def observe(prompt='pick', state=(1, 2, 3)) -> Observation:
    images = tuple(np.full((4, 4, 3), value, np.uint8) for value in (10, 20))
    return Observation(images, np.array(state, np.float32), prompt, 0)


def test_a_pi05_without_its_state_in_the_prompt_does_not_read_it():
    made = processing('pi05_small')
    first, second = (made.preprocess(observe(state=state)) for state in ((1, 2, 3), (4, 5, 6)))
    assert 'state' not in first
    assert all(torch.equal(first[name], second[name]) for name in first)
