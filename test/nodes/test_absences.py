# SPDX-License-Identifier: Apache-2.0
"""A server remembers robots that left, and forgets them when they have been gone for long."""

from collections.abc import Callable
from time import time_ns
from types import SimpleNamespace
from typing import Any

import pytest

from robion_ros.nodes import absences
from robion_ros.nodes.absences import Absences

pytestmark = pytest.mark.ros

Make = Callable[..., Any]
DAY = absences.FORGET_TIME


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets the clocks, s."""
    def set_to(now: float) -> None:
        monkeypatch.setattr(absences, 'monotonic', lambda: now)
        monkeypatch.setattr(absences, 'time_ns', lambda: int(1e9 * (10 * DAY + now)))
    return set_to


@pytest.mark.parametrize(('days', 'number', 'kept'), [
    ([0.0, 1.0], 9.0, True),
    ([0.0, 1.1], 9.0, False),
    ([0.0, 0.9, None, 1.1, 2.0], 9.0, True),
    ([0.0, 1.1], 10.05, False),
    ([0.0, 1.1], 10.2, True),
    ([0.0, 1.1, 2.1], 11.0, False),
], ids=['soon', 'late', 'back meanwhile', 'new then', 'ahead of the time', 'overtaken'])
def test_robot_is_forgotten_when_long_absent_and_the_time_is_past_its_number(
        at: Any, days: list[float | None], number: float, kept: bool) -> None:
    """None is a look at which it is present; numbers are times, in days."""
    found, known = Absences(), {'r': round(1e3 * number * DAY)}
    for day in days:
        if day is None:
            found.forget(known, int, {'r'})
        else:
            at(day * DAY)
            found.forget(known, int, ())
    assert ('r' in known) == kept


def test_a_robot_that_a_server_forgot_is_served_with_greater_numbers_when_it_returns(
        world: Any, robot: Make, monkeypatch: pytest.MonkeyPatch, kit: SimpleNamespace) -> None:
    monkeypatch.setattr(absences, 'FORGET_TIME', 0.3)
    server = world.server()
    arm, other = robot('r'), robot('s')
    begin = time_ns() // 10**6
    assert world.assign(1, kit.place('r', last_request=begin), 's').success
    world.ready(arm, other)
    arm.observe()
    world.until(lambda: arm.chunks)
    newest = arm.chunks[-1].request
    assert newest > begin
    assert world.assign(2, 's').success
    world.until(lambda: 'r' not in server._memories)
    assert 's' in server._memories
    assert world.assign(3, kit.place('r', last_request=time_ns() // 10**6), 's').success
    world.ready(arm)
    arm.observe()
    world.until(lambda: arm.chunks)
    assert arm.chunks[-1].request > newest
