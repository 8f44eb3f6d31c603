# SPDX-License-Identifier: Apache-2.0
"""What goes next behind what is in flight, under every rule for what is late."""

import pytest
import torch

from robion_ros.engine.batch import Batch, Ticket
from robion_ros.engine.forming import foresee, form
from robion_ros.engine.in_flight import Entering, InFlight
from robion_ros.engine.lockstep_times import LockstepTimes
from robion_ros.engine.policies import POLICIES
from robion_ros.engine.profile import Load
from robion_ros.engine.queues import Queues

ONE, TWO = Load('m', 1), Load('m', 2)
NOW = 100.0
STORED = {(vlm, adit): 0.010 * vlm.batch for vlm in (ONE, TWO) for adit in (ONE, TWO, None)}


@pytest.fixture
def waiting(kit):
    """Return a maker of queues that hold requests of some deadlines, s from now."""
    def make(*slos: float) -> Queues:
        queues = Queues(['m'], POLICIES['earliest_slo_first'], 2)
        for number, slo in enumerate(slos):
            queues.put(Ticket(kit.request(number, f'r{number}', deadline=NOW + slo), {},
                              torch.zeros(0), NOW))
        return queues
    return make


@pytest.fixture
def times() -> LockstepTimes:
    """Return times that were confirmed just now."""
    found = LockstepTimes(STORED)
    found.learn(ONE, None, 0.010, NOW)
    return found


def in_flight(kit, started: float, loads) -> InFlight:
    batch = kit.batch_of(kit.Fake(), 1)
    return InFlight((), loads, Entering(batch, None), None, 0.0, started)  # type: ignore[arg-type]


def numbers(batch: Batch | None) -> list[int]:
    return [ticket.request.number for ticket in batch.tickets] if batch else []


@pytest.mark.parametrize(('late', 'taken', 'shed'), [
    ('serve', [0, 1], []), ('yield', [1, 2], []), ('shed', [1, 2], [0]),
])
def test_what_is_late_goes_in_turn_gives_way_or_is_shed(waiting, times, late, taken,
                                                        shed) -> None:
    queues = waiting(0.005, 1.0, 1.0)
    batch, dropped = form(queues, times, late, NOW, None)
    assert numbers(batch) == taken and batch.started == NOW
    assert [ticket.request.number for ticket in dropped] == shed
    assert len(queues) == 3 - len(taken) - len(shed)


def test_a_batch_starts_when_what_is_in_flight_has_ended(kit, waiting, times) -> None:
    """It ends in 7 ms, then a batch of one takes 10 ms twice: 27."""
    running = in_flight(kit, NOW - 0.003, (ONE, None))
    assert foresee(times, NOW, running)(ONE) == pytest.approx(NOW + 0.027)
    assert foresee(times, NOW, None)(ONE) == pytest.approx(NOW + 0.020)
    assert numbers(form(waiting(0.025, 0.5), times, 'yield', NOW, running)[0]) == [1]
    assert numbers(form(waiting(0.025, 0.5), times, 'yield', NOW, None)[0]) == [0]


def test_what_takes_unknown_time_or_longer_than_known_may_end_now(kit, times) -> None:
    for running in (in_flight(kit, NOW, (None, ONE)), in_flight(kit, NOW - 5, (ONE, None))):
        assert foresee(times, NOW, running)(ONE) == pytest.approx(NOW + 0.020)


def test_nothing_waits(waiting, times) -> None:
    for late in ('serve', 'yield', 'shed'):
        assert form(waiting(), times, late, NOW, None) == (None, ())
    assert foresee(LockstepTimes({}), NOW, None)(ONE) == NOW
