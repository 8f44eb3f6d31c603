# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.manager.handover import Duty, moving, phases, Place

SERVERS = ('s', 't', 'u')
ROBOTS = tuple(f'r{number}' for number in range(1, 6))
MODELS = ('a', 'b')


@st.composite
def transitions(draw):
    """Draw old, new, the living servers and those that may hold anything."""
    alive = draw(st.sets(st.sampled_from(SERVERS), min_size=1))
    anywhere = st.builds(Place, st.sampled_from(MODELS), st.sampled_from(SERVERS))
    living = st.builds(Place, st.sampled_from(MODELS), st.sampled_from(sorted(alive)))
    old = draw(st.dictionaries(st.sampled_from(ROBOTS), anywhere))
    new = draw(st.dictionaries(st.sampled_from(ROBOTS), living))
    unsure = draw(st.sets(st.sampled_from(sorted(alive))))
    return old, new, alive, unsure


def believed(old, alive):
    """Return what living servers hold where old is right."""
    return {server: {robot: Duty(place.model) for robot, place in old.items()
                     if place.server == server} for server in alive}


def active_at(held, robot):
    return [server for server, robots in held.items()
            if robot in robots and not robots[robot].standby]


@given(transitions())
def test_phases_lead_from_old_to_new_and_nobody_is_answered_twice(transition) -> None:
    old, new, alive, unsure = transition
    held = believed(old, alive)
    steps = phases(old, new, alive, unsure)
    for number, step in enumerate(steps):
        # Servers are called side by side: one may be done before another has begun.
        before, held = held, held | step
        for robot in ROBOTS:
            ever = {server for stage in (before, held) for server in active_at(stage, robot)}
            assert len(ever) <= 1
            if robot in old and robot in new and old[robot].server in alive:
                stays = old[robot].server == new[robot].server
                # One that stays is always answered, one that moves but for its way.
                assert active_at(held, robot) or (not stays and number == 1)
                assert not stays or all(not robots[robot].standby for robots in held.values()
                                        if robot in robots)
    assert held == believed(new, alive)


@given(transitions())
def test_robots_that_nobody_answers_are_answered_in_the_first_phase(transition) -> None:
    old, new, alive, unsure = transition
    prepare, _, _ = phases(old, new, alive, unsure)
    for robot, place in new.items():
        if robot not in old or old[robot].server not in alive:
            assert prepare[place.server][robot] == Duty(place.model)


@given(transitions())
def test_moving_robots_are_on_standby_at_their_next_server_until_they_are_let_go(
        transition) -> None:
    old, new, alive, unsure = transition
    steps = phases(old, new, alive, unsure)
    handed_over = moving(old, new, alive)
    for robot in handed_over:
        assert steps.prepare[new[robot].server][robot] == Duty(new[robot].model, standby=True)
        assert robot not in steps.release[old[robot].server]
        assert steps.take_over[new[robot].server][robot] == Duty(new[robot].model)
    assert {robot for step in steps for robots in step.values()
            for robot, duty in robots.items() if duty.standby} <= handed_over


@given(transitions())
def test_only_servers_with_a_change_are_called_and_those_that_may_hold_anything(
        transition) -> None:
    old, new, alive, unsure = transition
    steps = phases(old, new, alive, unsure)
    held = believed(old, alive)
    for server in alive:
        calls = [step[server] for step in steps if server in step]
        assert server in steps.prepare or server not in unsure
        sets = calls if server in unsure else [held[server], *calls]
        assert all(one != other for one, other in pairwise(sets))
        if held[server] == believed(new, alive)[server]:
            assert len(calls) == (server in unsure)


@pytest.mark.parametrize(('old', 'new', 'alive', 'called'), [
    ({}, {'r1': Place('a', 's')}, 'st', [{'s'}, set(), set()]),
    ({'r1': Place('a', 's')}, {'r1': Place('a', 's')}, 's', [set(), set(), set()]),
    ({'r1': Place('a', 's')}, {'r1': Place('a', 't')}, 'st', [{'t'}, {'s'}, {'t'}]),
    ({'r1': Place('a', 's')}, {'r1': Place('b', 's')}, 's', [set(), set(), {'s'}]),
    ({'r1': Place('a', 's')}, {'r1': Place('a', 't')}, 't', [{'t'}, set(), set()]),
    ({'r1': Place('a', 's')}, {}, 's', [set(), {'s'}, set()]),
    ({'r1': Place('a', 's')}, {'r1': Place('a', 't'), 'r2': Place('a', 's')}, 'st',
     [{'s', 't'}, {'s'}, {'t'}]),
    ({'r1': Place('a', 's'), 'r2': Place('a', 't')},
     {'r1': Place('a', 't'), 'r2': Place('a', 's')}, 'st', [{'s', 't'}] * 3),
], ids=['new', 'nothing', 'moves', 'other model', 'server died', 'leaves', 'makes room',
        'swap'])
def test_who_is_called(old, new, alive, called) -> None:
    assert [set(step) for step in phases(old, new, alive)] == called
