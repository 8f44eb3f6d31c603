# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.config import CameraConfig, FactoryConfig, ManagerConfig, ModelConfig, ServerConfig
from robion_ros.manager import planner
from robion_ros.manager.assignment import moved
from robion_ros.manager.errors import InfeasiblePlan, NoServer, OverCapacity, Unserved
from robion_ros.manager.evaluate import evaluate
from robion_ros.manager.handover import Place
from robion_ros.manager.planner import (
    make_plan,
    make_problem,
    place_robots,
    plan_most,
    URGENT_TIME,
)
from robion_ros.manager.traffic import solve, TrafficPlan, TrafficProblem

CAPACITIES = {'a': 4, 'b': 2, 'c': 3}
BOTH = {'s': ('a', 'b'), 't': ('a', 'b')}


def make_factory(time_limit=30.0):
    models = {name: ModelConfig('tiny', {'front': CameraConfig()}, ('j',), 2.0, 0.2, capacity)
              for name, capacity in CAPACITIES.items()}
    return FactoryConfig(models, {name: ServerConfig(tuple(models)) for name in 'stu'},
                         manager=ManagerConfig(time_limit=time_limit))


FACTORY = make_factory()


def robots(**counts):
    return {f'{model}_{number}': model for model, count in counts.items()
            for number in range(1, count + 1)}


def checked(plan, models, hosts):
    """Return a plan after every robot has been compared with the counts that evaluate checks."""
    problem = make_problem(FACTORY, models, hosts, {})
    assert evaluate(problem, plan.traffic) == plan.traffic.objective
    assert Counter((place.server, place.model) for place in plan.places.values()) == Counter(
        plan.traffic.robots)
    assert {robot: place.model for robot, place in plan.places.items()} == models
    return plan


factories = st.tuples(
    st.dictionaries(st.sampled_from([f'r{number}' for number in range(8)]),
                    st.sampled_from(sorted(CAPACITIES)), max_size=6),
    st.dictionaries(st.sampled_from('stu'), st.lists(
        st.sampled_from([*CAPACITIES, 'unknown']), unique=True), max_size=3),
    st.dictionaries(st.sampled_from([f'r{number}' for number in range(8)]), st.builds(
        Place, st.sampled_from([*CAPACITIES, 'unknown']), st.sampled_from('stuv'))))


@settings(deadline=None)
@given(factories)
def test_every_plan_is_feasible_and_places_every_robot(case) -> None:
    models, hosts, running = case
    try:
        plan = make_plan(FACTORY, models, hosts, running)
    except Unserved as error:
        homeless = set(models.values()) - {name for names in hosts.values() for name in names}
        assert isinstance(error, NoServer if homeless else OverCapacity)
        plan = place_robots(error.fitting, error.best, models, running)
        assert evaluate(error.fitting, plan.traffic) == plan.traffic.objective
        assert set(plan.places) < set(models)
        return
    checked(plan, models, hosts)
    # Planned again, nothing moves.
    again = make_plan(FACTORY, models, hosts, plan.places)
    assert again.places == plan.places and not again.moves


@pytest.mark.parametrize(('hosts', 'running', 'places', 'moves'), [
    (BOTH, {'a_1': Place('a', 't'), 'b_1': Place('b', 's')}, {'a_1': 't', 'b_1': 's'}, 0),
    ({'s': ('a', 'b')}, {'a_1': Place('a', 't'), 'b_1': Place('b', 's')},
     {'a_1': 's', 'b_1': 's'}, 1),
    (BOTH, {'b_1': Place('b', 's')}, {'a_1': 't', 'b_1': 's'}, 0),
    ({'s': ('a',), 't': ('b',)}, {'a_1': Place('a', 't'), 'b_1': Place('b', 's')},
     {'a_1': 's', 'b_1': 't'}, 2),
    ({'s': ('a', 'unknown'), 't': ('unknown', 'b')}, {}, {'a_1': 's', 'b_1': 't'}, 0),
], ids=['stays', 'server died', 'server started again', 'models moved',
        'models of another file'])
def test_places(hosts, running, places, moves) -> None:
    models = robots(a=1, b=1)
    plan = checked(make_plan(FACTORY, models, hosts, running), models, hosts)
    assert {robot: place.server for robot, place in plan.places.items()} == places
    assert moved(plan.moves) == moves


def test_model_that_is_loaded_nowhere_is_named() -> None:
    with pytest.raises(NoServer, match=r'2 robots of c .servers: s, t.'):
        make_plan(FACTORY, robots(a=1, c=2), BOTH, {})


def test_no_server_at_all() -> None:
    with pytest.raises(NoServer, match='servers: none'):
        make_plan(FACTORY, robots(a=1), {}, {})
    assert not make_plan(FACTORY, {}, {}, {}).places


def test_robots_that_are_served_are_not_left_out_for_others() -> None:
    models = robots(a=6)
    running = {'a_6': Place('a', 's'), 'a_5': Place('a', 's')}
    with pytest.raises(OverCapacity, match='over by 2 robots of a') as caught:
        make_plan(FACTORY, models, {'s': ('a',)}, running)
    plan = place_robots(caught.value.fitting, caught.value.best, models, running)
    assert set(plan.places) == {'a_1', 'a_2', 'a_5', 'a_6'}
    assert moved(plan.moves) == 0


def test_server_has_capacities_of_its_own() -> None:
    slow = replace(FACTORY, servers={**FACTORY.servers,
                                     's': ServerConfig(('a', 'b'), capacities={'a': 1})})
    hosts = {'s': ('a',), 't': ('a',)}
    plan = make_plan(slow, robots(a=5), hosts, {})
    assert Counter(place.server for place in plan.places.values()) == {'s': 1, 't': 4}
    with pytest.raises(OverCapacity, match='over by 1 robot of a'):
        make_plan(slow, robots(a=6), hosts, {})


def test_model_of_higher_priority_is_served_first() -> None:
    first = replace(FACTORY, models={**FACTORY.models,
                                     'b': replace(FACTORY.models['b'], priority=1)})
    models = robots(a=4, b=2)
    with pytest.raises(OverCapacity, match='over by 4 robots of a') as caught:
        make_plan(first, models, {'s': ('a', 'b')}, {})
    plan = place_robots(caught.value.fitting, caught.value.best, models, {})
    assert set(plan.places) == {'b_1', 'b_2'}


@pytest.mark.parametrize(('most', 'urgent', 'limit'), [
    (30.0, False, 30.0), (30.0, True, URGENT_TIME), (0.05, True, 0.05)], ids=str)
def test_a_plan_that_robots_wait_for_takes_little_time(
        monkeypatch: pytest.MonkeyPatch, most: float, urgent: bool, limit: float) -> None:
    given_times = []

    def noted(problem: TrafficProblem, time_limit: float) -> TrafficPlan:
        given_times.append(time_limit)
        return solve(problem, time_limit)
    monkeypatch.setattr(planner, 'solve', noted)
    plan_most(make_factory(most), robots(a=3), BOTH, {}, urgent=urgent)
    assert given_times == [limit]


def test_the_most_are_planned_and_who_is_left_out_is_said() -> None:
    plan, unserved = plan_most(FACTORY, robots(a=3), {'s': ('a',)}, {})
    assert len(plan.places) == 3 and unserved is None
    plan, unserved = plan_most(FACTORY, robots(a=6), {'s': ('a',)}, {})
    assert len(plan.places) == 4 and isinstance(unserved, OverCapacity)
    plan, unserved = plan_most(FACTORY, robots(a=1, b=1), {'s': ('a',)}, {})
    assert set(plan.places) == {'a_1'} and isinstance(unserved, NoServer)


def test_small_changes_move_nobody_without_need() -> None:
    models = robots(a=4, b=2, c=1)
    hosts = dict.fromkeys('stu', tuple(CAPACITIES))
    places = make_plan(FACTORY, models, hosts, {}).places
    for robot, model in (('a_5', 'a'), ('c_2', 'c')):
        models[robot] = model
        plan = make_plan(FACTORY, models, hosts, places)
        fresh = make_plan(FACTORY, models, hosts, {})
        assert plan.traffic.optimal and plan.traffic.objective == fresh.traffic.objective
        assert moved(plan.moves) <= 1
        places = plan.places


@pytest.mark.parametrize('homes', [{}, {'a_1': Place('a', 't'), 'a_9': Place('a', 't'),
                                        'b_1': Place('b', 'gone')}])
def test_robots_go_home_where_that_costs_nothing(homes) -> None:
    models = robots(a=2, b=1)
    hosts = dict.fromkeys('stu', tuple(CAPACITIES))
    running = {'a_1': Place('a', 's'), 'a_2': Place('a', 's'), 'b_1': Place('b', 'u')}
    plan, _ = plan_most(FACTORY, models, hosts, running, homes=homes)
    checked(plan, models, hosts)
    assert plan.traffic.objective == 0
    assert [(move.robot, move.from_server, move.to_server) for move in plan.moves] == (
        [('a_1', 's', 't')] if homes else [])


def test_plan_that_breaks_a_rule_is_thrown_away() -> None:
    models = robots(a=5)
    problem = make_problem(FACTORY, models, {'s': ('a',)}, {})
    with pytest.raises(InfeasiblePlan, match='the load of s is 5/4'):
        place_robots(problem, TrafficPlan({('s', 'a'): 5}, 0, True, 0, 0.0), models, {})
