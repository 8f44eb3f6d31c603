# SPDX-License-Identifier: Apache-2.0
"""What the types of a request's life compute."""

from dataclasses import FrozenInstanceError

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from robion_ros.core import ActionChunk, Observation, Request, Timings


def request(robot: str = 'arm_1', number: int = 7, model: str = 'pick',
            deadline: float = 2.0) -> Request:
    return Request(robot, number, model, Observation((), np.zeros(2, np.float32), 'go', 0),
                   1.0, deadline)


@given(robot=st.text(min_size=1), number=st.integers(0, 2**64 - 1))
def test_seed_is_in_range(robot: str, number: int) -> None:
    assert 0 <= request(robot, number).seed < 2**63


def test_seed_is_the_same_in_every_process() -> None:
    assert request().seed == 7860605740927814451


def test_seed_depends_on_robot_and_number_only() -> None:
    assert request().seed == request(model='place', deadline=9.0).seed


def test_seeds_of_a_fleet_differ() -> None:
    seeds = {request(f'arm_{robot}', number).seed
             for robot in range(30) for number in range(300)}
    assert len(seeds) == 9000


@pytest.mark.parametrize(('finished', 'met'), [(1.5, True), (2.0, True), (2.1, False)],
                         ids=['before', 'at', 'after'])
def test_deadline_met(finished: float, met: bool) -> None:
    chunk = ActionChunk(request(), np.zeros((3, 4), np.float32), Timings(0, 0, 0, 0), 1, finished)
    assert chunk.deadline_met is met


@pytest.mark.parametrize(('value', 'field'), [
    (request(), 'number'), (request().observation, 'prompt'), (Timings(0, 0, 0, 0), 'vlm'),
], ids=['Request', 'Observation', 'Timings'])
def test_types_are_frozen(value: object, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, 1)
