# SPDX-License-Identifier: Apache-2.0
"""A server that was held up knows it before it answers."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.nodes import lease as module
from robion_ros.nodes.lease import Lease

pytestmark = pytest.mark.ros

Clock = Callable[[float], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that sets the clock, s."""
    def set_to(now: float) -> None:
        for clock in ('monotonic', 'boottime'):
            monkeypatch.setattr(module, clock, lambda: now)

    set_to(0.0)
    return set_to


def test_beats_in_time_keep_the_term_and_what_came_in_it(at: Clock) -> None:
    lease = Lease(0.4)
    term = lease.term
    for step in range(1, 20):
        at(step * lease.period)
        assert lease.beat() == term
    assert lease.covers(0.01) and lease.term == term


def test_nothing_is_covered_before_the_gap_is_noticed(at: Clock) -> None:
    """The thread that publishes may go on sooner than the one that beats."""
    lease = Lease(0.4)
    at(0.29)
    assert lease.covers(0.1)
    at(0.31)
    assert not lease.covers(0.1)


def test_what_came_before_the_gap_stays_void(at: Clock) -> None:
    lease = Lease(0.4)
    term = lease.term
    at(5.0)
    assert lease.beat() > term and lease.term > term
    assert lease.gap == 5.0
    assert not lease.covers(0.1) and not lease.covers(4.9)
    assert lease.covers(5.0)


def test_a_machine_that_was_suspended_has_a_gap(
        at: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its monotonic clock stood still."""
    lease = Lease(0.4)
    at(0.1)
    term = lease.beat()
    monkeypatch.setattr(module, 'boottime', lambda: 60.1)
    assert not lease.covers(0.1)
    assert lease.beat() > term and lease.gap == 60.0


def test_the_clocks_that_are_used_go_on() -> None:
    before = module.boottime()
    assert 0 < before <= module.boottime()


def test_what_comes_while_a_new_term_begins_is_of_the_old_one(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Its term is asked for after it came: it must not seem to have come after the gap."""
    lease = Lease(0.4)
    monkeypatch.setattr(module, 'monotonic', lambda: 5.0 if lease._lock.locked() else 4.0)
    monkeypatch.setattr(module, 'boottime', lambda: lease._beaten + 1.0)
    lease.beat()
    assert not lease.covers(4.5)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30))
def test_whoever_a_manager_may_have_given_up_answers_nothing_of_before(gaps: list[float]) -> None:
    """A manager gives a server up that it has not heard for its whole timeout."""
    now = 0.0
    with pytest.MonkeyPatch.context() as patch:
        for clock in ('monotonic', 'boottime'):
            patch.setattr(module, clock, lambda: now)
        lease = Lease(0.4)
        given_up, terms = -1.0, [lease.term]
        for gap in gaps:
            if gap > 0.4:
                given_up = now + 0.4
            now += gap
            terms.append(lease.beat())
            assert given_up < 0 or not lease.covers(given_up)
    assert terms == sorted(terms)
