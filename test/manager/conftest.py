# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping

import pytest

from robion_ros.manager.traffic import TrafficProblem

MakeProblem = Callable[[Mapping[str, int], Mapping[str, Mapping[str, int]]], TrafficProblem]


@pytest.fixture(scope='session')
def make_problem() -> MakeProblem:
    """Return a function of the robots by model and the capacities by server and model."""
    def make(robots: Mapping[str, int],
             capacities: Mapping[str, Mapping[str, int]]) -> TrafficProblem:
        return TrafficProblem(
            robots, {server: tuple(row) for server, row in capacities.items()},
            {(server, model): capacity for server, row in capacities.items()
             for model, capacity in row.items()})
    return make
