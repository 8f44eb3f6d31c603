# SPDX-License-Identifier: Apache-2.0
"""A made-up factory is the same everywhere, of the size and kind asked for, and can be served."""

from random import Random

import pytest

from robion_ros.bench.factories import change, make_factory
from robion_ros.bench.settings import FACTORIES, Size
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.group import split
from robion_ros.manager.traffic import solve

SIZES = Size(8, 4, 64), Size(16, 16, 400)


@pytest.mark.parametrize('size', SIZES, ids=str)
@pytest.mark.parametrize('kind', FACTORIES)
def test_factory_is_as_asked_and_can_be_served(size: Size, kind: str) -> None:
    problem = make_factory(size, kind, 3)
    assert (len(problem.robots), len(problem.hosts)) == (size.models, size.servers)
    assert sum(problem.robots.values()) == size.robots
    plan = solve(problem, 0.05)
    assert evaluate(problem, plan) == plan.objective
    assert make_factory(size, kind, 3) == problem != make_factory(size, kind, 4)
    groups = list(split(problem.robots, problem.places, {}, {}))
    alike = len({tuple(sorted(row.items())) for row in problem.places.values()})
    match kind:
        case 'identical':
            assert alike == 1
        case 'groups':
            assert len(groups) == alike == max(2, size.servers // 4)
        case 'partial':
            assert all(len(row) < size.models for row in problem.hosts.values())
            assert all(sum(model in row for row in problem.hosts.values()) > 1
                       for model in problem.robots)
        case 'heterogeneous':
            assert alike == size.servers


def test_factories_are_those_of_before() -> None:
    """Of another drawing the stored objectives would be wrong."""
    problem = make_factory(SIZES[0], 'identical', 0)
    assert list(problem.robots.values()) == [10, 9, 4, 6, 3, 11, 9, 12]
    assert list(problem.places['server_00'].values()) == [14, 20, 17, 20, 22, 23, 11, 24]
    problem = make_factory(SIZES[0], 'heterogeneous', 0)
    assert list(problem.places['server_03'].values()) == [27, 23, 13, 9, 9, 17, 9, 40]


def test_small_change_leaves_the_others_running() -> None:
    problem = make_factory(SIZES[0], 'partial', 0)
    plan = solve(problem, 0.05)
    for seed in range(10):
        changed = change(problem, plan, Random(seed))
        assert abs(sum(changed.robots.values()) - 64) == 1
        gone = sum(plan.robots.values()) - sum(changed.running.values())
        assert gone == max(0, 64 - sum(changed.robots.values()))
        assert all(count <= plan.robots[place] for place, count in changed.running.items())
