# SPDX-License-Identifier: Apache-2.0
"""Every request has one end, and what was overtaken is not answered."""

import numpy as np
import pytest

from robion_ros.bench.arrivals import Arrival, Robot
from robion_ros.bench.network import Trip
from robion_ros.bench.records import Ending
from robion_ros.core import ActionChunk, Timings
from robion_ros.simulation.ledger import Ledger


def trip(number: int, at: float, up: float | None = 0.01) -> Trip:
    return Trip(Arrival(Robot('a', 'm', 0.1), number, at, True), up, 0.02)


def chunk(request, finished: float) -> ActionChunk:
    return ActionChunk(request, np.zeros((1, 1), np.float32), Timings(0, 0, 0, 0), 1, finished)


def test_a_request_counts_from_its_observation() -> None:
    ledger, asked = Ledger(50.0), trip(1, 2.0)
    request = ledger.open(asked, 52.01)
    assert request is not None
    assert (request.arrived, request.deadline) == (52.01, pytest.approx(52.1))
    ledger.hear(chunk(request, 52.04))
    (record,) = ledger.close([asked])
    assert record.ending is Ending.ANSWERED and record.latency == pytest.approx(0.06)


def test_ends_are_those_that_were_heard() -> None:
    ledger = Ledger()
    trips = [trip(1, 0.0, up=0.9), trip(2, 0.5), trip(3, 1.0, up=None), trip(4, 1.5)]
    assert ledger.open(trips[1], 0.51) and ledger.open(trips[3], 1.51)
    assert ledger.open(trips[0], 0.9) is None
    assert [record.ending for record in ledger.close(trips)] == [
        Ending.SUPERSEDED, Ending.UNANSWERED, Ending.LOST_UP, Ending.UNANSWERED]


def test_a_second_end_is_an_error() -> None:
    ledger = Ledger()
    request = ledger.open(trip(1, 0.0), 0.0)
    assert request is not None
    ledger.hear(chunk(request, 0.1))
    with pytest.raises(AssertionError, match='request 1 of a had more than one outcome'):
        ledger.hear(chunk(request, 0.2))
