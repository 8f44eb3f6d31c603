# SPDX-License-Identifier: Apache-2.0
"""What happens, happens in order."""

from hypothesis import given
from hypothesis import strategies as st

from robion_ros.simulation.agenda import Agenda


@given(st.lists(st.floats(0, 10)))
def test_everything_happens_once_in_the_order_of_time(times: list[float]) -> None:
    agenda, seen = Agenda(), []
    for number, time in enumerate(times):
        agenda.at(time, lambda now, number=number: seen.append((now, number)))
    agenda.run()
    assert seen == sorted((time, number) for number, time in enumerate(times))


def test_what_follows_happens_too_and_never_in_the_past() -> None:
    agenda, seen = Agenda(), []

    def first(now: float) -> None:
        seen.append(('first', now))
        agenda.at(0.5, lambda now: seen.append(('late', now)))
        agenda.at(3.0, lambda now: seen.append(('third', now)))
    agenda.at(2.0, lambda now: seen.append(('second', now)))
    agenda.at(1.0, first)
    agenda.run()
    assert seen == [('first', 1.0), ('late', 1.0), ('second', 2.0), ('third', 3.0)]
    assert agenda.now == 3.0
