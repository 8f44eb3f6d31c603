# SPDX-License-Identifier: Apache-2.0
"""
What becomes of every request: made from its trip, heard of once at most, settled as a record.

Knows neither servers nor which of them a request goes to.
"""

from collections.abc import Sequence

import numpy as np

from robion_ros.bench.network import Trip
from robion_ros.bench.records import Record, settle
from robion_ros.core import Dropped, DropReason, Observation, Outcome, Request

NOTHING = Observation((), np.zeros(0, np.float32), 'nothing', 0)
"""What simulated robots see."""


class Ledger:
    """The requests of one run."""

    def __init__(self, start: float = 0.0) -> None:
        """Begin at the start of an epoch, s."""
        self._start = start
        self._outcomes: dict[tuple[str, int], Outcome] = {}
        self._newest: dict[str, int] = {}

    def open(self, trip: Trip, now: float) -> Request | None:
        """
        Return the request that reaches its server now; None for one that was overtaken.

        Its deadline is that of bench/drive.py: the observation's time plus the SLO.
        """
        robot, number = trip.arrival.robot, trip.arrival.number
        request = Request(robot.name, number, robot.model, NOTHING, now,
                          self._start + trip.arrival.at + robot.slo)
        if number < self._newest.get(robot.name, 0):
            self.hear(Dropped(request, DropReason.SUPERSEDED))
            return None
        self._newest[robot.name] = number
        return request

    def hear(self, outcome: Outcome) -> None:
        """Take the outcome of a request."""
        key = outcome.request.robot, outcome.request.number
        if key in self._outcomes:
            raise AssertionError(f'request {key[1]} of {key[0]} had more than one outcome')
        self._outcomes[key] = outcome

    def close(self, trips: Sequence[Trip]) -> list[Record]:
        """Return one record for each request; of which nothing was heard, unanswered."""
        return [settle(trip, self._outcomes.pop(trip.key, None), self._start) for trip in trips]
