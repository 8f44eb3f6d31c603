# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Mapping, Sequence

import pytest

from robion_ros.manager.group import Counts, Group
from robion_ros.manager.traffic import TrafficProblem

MakeProblem = Callable[..., TrafficProblem]
MakeGroup = Callable[..., Group]


@pytest.fixture(scope='session')
def make_problem() -> MakeProblem:
    """Return a function of the robots by model and the capacities by server and model."""
    def make(robots: Mapping[str, int], capacities: Mapping[str, Mapping[str, int]],
             running: Counts | None = None,
             priorities: Mapping[str, int] | None = None) -> TrafficProblem:
        return TrafficProblem(
            robots, {server: tuple(row) for server, row in capacities.items()},
            {(server, model): capacity for server, row in capacities.items()
             for model, capacity in row.items()}, running or {}, priorities or {})
    return make


@pytest.fixture(scope='session')
def make_group() -> MakeGroup:
    """Return a function of the robots by model and the capacities by server and model."""
    def make(robots: Sequence[int], capacities: Sequence[Sequence[int]],
             running: Sequence[Sequence[int]] | None = None,
             priorities: Sequence[int] | None = None) -> Group:
        return Group(
            tuple(f's{index}' for index in range(len(capacities))),
            tuple('abcdefghijklmnop'[:len(robots)]), tuple(robots), tuple(map(tuple, capacities)),
            tuple(map(tuple, running or [[0] * len(robots)] * len(capacities))),
            tuple(priorities or [0] * len(robots)))
    return make
