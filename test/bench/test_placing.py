# SPDX-License-Identifier: Apache-2.0
"""Populations that fill servers as far as asked, and the ways to divide them."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.bench.placing import draw_robots, name_robots, place_all, seat
from robion_ros.bench.settings import BenchError
from robion_ros.manager.traffic import TrafficProblem

MODELS = 'abcd'
HOSTS = {'s': tuple(MODELS), 't': tuple(MODELS)}
CAPACITIES = {(server, model): 30 + 10 * index for server in HOSTS
              for index, model in enumerate(MODELS)}


@given(fill=st.floats(0.2, 1.0), seed=st.integers(0, 1000))
def test_robots_fill_servers_as_far_as_asked(fill, seed) -> None:
    robots = draw_robots(HOSTS, CAPACITIES, fill, seed)
    load = sum(count / CAPACITIES['s', model] for model, count in robots.items()) / len(HOSTS)
    # Each model is rounded down, by less than a robot.
    lost = sum(1 / CAPACITIES['s', model] for model in MODELS) / len(HOSTS)
    assert fill - lost <= load <= fill + 1e-9 and min(robots.values()) >= 1
    assert draw_robots(HOSTS, CAPACITIES, fill, seed) == robots


@settings(deadline=None, max_examples=20)
@given(fill=st.floats(0.2, 0.9), seed=st.integers(0, 100))
def test_every_way_places_the_same_robots(fill, seed) -> None:
    robots = draw_robots(HOSTS, CAPACITIES, fill, seed)
    found = {placing.way: placing
             for placing in place_all(TrafficProblem(robots, HOSTS, CAPACITIES), 2.0)}
    assert list(found) == ['manager', 'even split', 'whole models', 'one model each']
    for way in ('manager', 'even split', 'whole models'):
        placed = Counter[str]()
        for (_, model), count in found[way].robots.items():
            placed[model] += count
        assert placed == robots
    assert found['manager'].objective <= found['even split'].objective
    assert max(found['manager'].loads.values()) <= 1
    assert len(found['whole models'].robots) == len(MODELS)
    assert len(found['one model each'].robots) == len(HOSTS)
    assert found['one model each'].objective == 0


def test_pairs_and_loads_are_those_of_the_robots() -> None:
    problem = TrafficProblem({'a': 3, 'b': 4}, {'s': ('a', 'b')}, {('s', 'a'): 30, ('s', 'b'): 40})
    placing, *_ = place_all(problem, 1.0)
    assert placing.objective == 12 and placing.loads == {'s': pytest.approx(0.2)}


def test_robots_have_the_same_names_in_every_way_and_seats_as_they_are_counted() -> None:
    robots = name_robots({'a': 2, 'b': 3}, {'a': 0.1, 'b': 0.2})
    assert [(robot.name, robot.slo) for robot in robots] == [
        ('a_1', 0.1), ('a_2', 0.1), ('b_1', 0.2), ('b_2', 0.2), ('b_3', 0.2)]
    assert seat(robots, {('s', 'a'): 1, ('t', 'a'): 1, ('t', 'b'): 2}) == {
        'a_1': 's', 'a_2': 't', 'b_1': 't', 'b_2': 't'}


def test_more_robots_than_fit_are_refused_with_the_mend() -> None:
    problem = TrafficProblem({'a': 31}, {'s': ('a',)}, {('s', 'a'): 30})
    with pytest.raises(BenchError, match=r'over by 1 robot.*take a lower --fill'):
        place_all(problem, 1.0)
