# SPDX-License-Identifier: Apache-2.0
"""Who is there when, and asks."""

from collections import Counter

import pytest

from robion_ros.bench.settings import Traffic
from robion_ros.config import FieldError
from robion_ros.simulation.events import Change, Kill
from robion_ros.simulation.scenario import Scenario

TRAFFIC = Traffic(epochs=1, seconds=10.0, lead=1.0)


def make(kit, **changes) -> Scenario:
    return Scenario(kit.make_factory(), kit.make_times(), TRAFFIC, **changes)


def test_every_robot_asks_at_its_models_rate(kit) -> None:
    arrivals = make(kit).arrivals
    assert [arrival.at for arrival in arrivals] == sorted(arrival.at for arrival in arrivals)
    counted = Counter(arrival.robot.name for arrival in arrivals if arrival.counted)
    assert counted == {f'{model}_{index}': 20 for model in ('pick', 'place')
                       for index in range(1, 5)}
    phases = {arrival.at for arrival in arrivals if arrival.at < 0.5}
    assert len(phases) == 8, 'robots of two models have phases of their own'


def test_robots_ask_while_they_are_there(kit) -> None:
    scenario = make(kit, changes=[Change('pick', 6, 4.0), Change('place', 1, 4.0),
                                  Change('pick', 5, 8.0)])
    assert [(at, Counter(models.values())) for at, models in scenario.populations] == [
        (0.0, {'pick': 4, 'place': 4}), (5.0, {'pick': 6, 'place': 1}),
        (9.0, {'pick': 5, 'place': 1})]
    times: dict[str, list[float]] = {}
    for arrival in scenario.arrivals:
        times.setdefault(arrival.robot.name, []).append(arrival.at)
    assert min(times['pick_6']) >= 5.0 and max(times['pick_6']) < 9.0
    assert min(times['pick_5']) >= 5.0 and max(times['pick_5']) > 9.0
    assert max(times['place_4']) < 5.0 < max(times['place_1'])
    numbers = [arrival.number for arrival in scenario.arrivals
               if arrival.robot.name == 'pick_5']
    assert numbers == sorted(set(numbers))


def test_a_change_at_0_holds_from_the_first_request_on(kit) -> None:
    ((at, models),) = make(kit, changes=[Change('pick', 9)]).populations
    assert at == 0.0 and Counter(models.values()) == {'pick': 9, 'place': 4}


@pytest.mark.parametrize(('changes', 'problem'), [
    ({'kills': [Kill('server_9', 3.0)]}, "kill: 'server_9' is not a valid server"),
    ({'kills': [Kill('server_1', 30.0)]}, 'kill: is 30.0, must be from 0 to 10.0'),
    ({'kills': [Kill('server_1', 3.0), Kill('server_1', 5.0)]}, 'server_1 is dead already at 5'),
    ({'kills': [Kill('server_1', 5.0), Kill('server_1', 3.0, 7.0)]}, 'is dead already at 5'),
    ({'changes': [Change('pik', 3)]}, "'pik' is not a valid model; did you mean 'pick'"),
    ({'changes': [Change('pick', 3, 11.0)]}, 'population: is 11.0'),
], ids=['server', 'when', 'dead', 'dead before', 'model', 'when changed'])
def test_what_cannot_be_is_named(kit, changes: dict, problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        make(kit, **changes)


def test_a_population_that_stands_twice_is_named(kit) -> None:
    with pytest.raises(FieldError, match="'pick' stands twice"):
        _ = make(kit, changes=[Change('pick', 3, 2.0), Change('pick', 4, 2.0)]).populations
