# SPDX-License-Identifier: Apache-2.0
"""When it is time to plan."""

from collections.abc import Callable

import pytest

from robion_ros.msg import ServerStatus
from robion_ros.nodes import watch as module
from robion_ros.nodes.watch import LISTEN_TIME, RECOVERY_TIME, Watch

pytestmark = pytest.mark.ros

Clock = Callable[[float], None]
ONE = {'s': ServerStatus(incarnation=1)}
BOTH = ONE | {'t': ServerStatus(incarnation=2)}
AGAIN = ONE | {'t': ServerStatus(incarnation=3)}
SERVING = {'s': ServerStatus(incarnation=1, epoch=9)}


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that sets the clock, s."""
    def set_to(now: float) -> None:
        monkeypatch.setattr(module, 'monotonic', lambda: now)

    set_to(0.0)
    return set_to


@pytest.fixture
def watch(at: Clock) -> Watch:
    return Watch(['s', 't'], server_timeout=1.0, settle_time=1.0)


def test_first_plan_waits_until_all_are_there_or_nobody_comes_any_more(watch, at) -> None:
    assert not watch.due({})
    assert not watch.due(BOTH)
    at(1.0)
    assert watch.due(BOTH)
    assert not watch.due(ONE)
    at(1.9)
    assert not watch.due(ONE)
    at(2.0)
    assert watch.due(ONE)
    assert not watch.due({})


@pytest.mark.parametrize(('alive', 'at_once', 'later'), [
    (BOTH, False, False), (ONE, True, True), ({}, True, True), (AGAIN, True, True),
], ids=['same', 'lost', 'all lost', 'started again'])
def test_plan_after_a_plan(watch, at, alive, at_once, later) -> None:
    at(5.0)
    watch.planned(BOTH, {'s', 't'}, again=False)
    assert watch.due(alive) == at_once
    at(6.0)
    assert watch.due(alive) == later


def test_server_that_comes_is_planned_with_when_it_stays(watch, at) -> None:
    three = Watch(['s', 't', 'u'], 1.0, 1.0)
    at(5.0)
    three.planned(ONE, {'s'}, again=False)
    assert not three.due(BOTH)
    at(6.0)
    assert three.due(BOTH)


def test_who_has_heard_nobody_yet_is_not_sure(watch, at) -> None:
    assert 'no server has been heard yet' in watch.doubt({})
    assert not watch.doubt(ONE)
    watch.planned(ONE, {'s'}, again=False)
    assert not watch.doubt({})


def test_plan_that_failed_is_tried_again(watch, at) -> None:
    watch.planned(BOTH, {'s'}, again=True)
    at(0.9)
    assert not watch.due(BOTH)
    at(1.0)
    assert watch.due(BOTH)


def test_obedient_are_who_did_as_told_and_are_the_same_since(watch) -> None:
    assert watch.obedient(BOTH) == set()
    watch.planned(BOTH, {'s', 't'}, again=False)
    assert watch.obedient(BOTH) == {'s', 't'}
    assert watch.obedient(AGAIN) == watch.obedient(ONE) == {'s'}
    watch.distrust([])
    assert not watch.due(BOTH)
    watch.distrust(['t'])
    assert watch.obedient(BOTH) == {'s'} and watch.due(BOTH)


@pytest.mark.parametrize(('alive', 'doubted'), [
    (ONE, False), (SERVING, True), (SERVING | BOTH, False)],
    ids=['new ones', 'one of two serves', 'all'])
def test_manager_that_starts_waits_for_all_if_one_serves(watch, at, alive, doubted) -> None:
    served = any(status.epoch for status in alive.values())
    assert ('listens whether another' in watch.doubt(alive)) == served
    for now in (0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8, LISTEN_TIME):
        at(now)
        watch.look()
    assert ('not yet heard of t' in watch.doubt(alive)) == doubted
    for now in (3.4, 3.8, 4.2, 4.6, RECOVERY_TIME):
        at(now)
        watch.look()
    assert not watch.doubt(alive)


def test_manager_that_was_held_up_listens_before_it_plans(watch, at) -> None:
    at(0.5)
    assert not watch.doubt(BOTH)
    watch.look()
    at(1.1)
    assert 'held up' in watch.doubt({}), 'also before it is noticed where servers are heard'
    watch.look()
    for now in (1.3, 1.5):
        at(now)
        watch.look()
        assert 'held up' in watch.doubt(ONE)
    at(1.7)
    watch.look()
    assert not watch.doubt(ONE)


def test_manager_that_was_held_up_while_it_planned_listens_too(watch, at) -> None:
    for now in (0.4, 0.8):
        at(now)
        watch.look()
    at(2.0)
    watch.look()
    at(2.1)
    assert 'held up' in watch.doubt({})


def test_after_a_hold_up_it_listens_as_long_as_the_most_patient_server_needs(watch, at) -> None:
    watch.planned(BOTH, {'s', 't'}, again=False)
    assert not watch.doubt(BOTH)
    at(5.0)
    watch.look(longest=6.0)
    assert 'was held up' in watch.doubt(BOTH)
    for now in (5.4, 5.8, 6.2, 6.6, 7.0, 7.4, 7.8):
        at(now)
        watch.look(longest=6.0)
        assert watch.doubt(BOTH)
    at(8.0)
    assert not watch.doubt(BOTH)
