# SPDX-License-Identifier: Apache-2.0
"""
Drives an engine in this process: submits an epoch's requests when they are due and keeps count.

One thread, the caller's, sleeps from request to request and submits each, preprocessing
included, as the one worker of a server node does. Latencies count from the planned times, so
that a generator that falls behind makes them longer, never shorter. Knows neither what pipeline
the engine runs nor how requests are counted.
"""

from collections.abc import Callable, Mapping, Sequence
import sys
from time import monotonic, sleep

from robion_ros.bench.network import Trip
from robion_ros.bench.observations import Observations
from robion_ros.bench.records import Record, settle
from robion_ros.bench.settings import BenchError
from robion_ros.core import Dropped, DropReason, Outcome, Request
from robion_ros.engine.engine import Engine

SWITCH_INTERVAL = 0.0005
"""What a server node sets: how long a thread may keep others from Python, s."""
DRAIN = 30.0
"""Longest wait for what is under way when an epoch ends, s."""
HEADSTART = 0.02
"""From the call to the start of an epoch, s."""


def never() -> None:
    """Have no reason to end a run."""


class EngineServing:
    """An engine as something that serves; what the engine calls out goes to it."""

    def __init__(self, make_engine: Callable[[Callable[[Outcome], None]], Engine],
                 sources: Mapping[str, Observations],
                 check: Callable[[], None] = never) -> None:
        """
        Make the engine; sources has the observations of each model's robots.

        check is called before each request, and what it raises ends the run.
        """
        self._sources, self._check = sources, check
        self._outcomes: dict[tuple[str, int], Outcome] = {}
        self._doubled = 0
        self._assignments = 0
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._engine = make_engine(self._hear)

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        """Serve the requests of one epoch; see Serving."""
        self._assignments += 1
        self._engine.assign(self._assignments, {trip.arrival.robot.name: trip.arrival.robot.model
                                                for trip in trips})
        due = sorted((trip for trip in trips if trip.up is not None), key=lambda trip: trip.due)
        lags: dict[tuple[str, int], float] = {}
        newest: dict[str, int] = {}
        start = monotonic() + HEADSTART
        for trip in due:
            self._check()
            at = start + trip.due
            while (left := at - monotonic()) > 0:
                sleep(left)
            lags[trip.key] = monotonic() - at
            request = self._request(trip, start, at)
            if request.number < newest.get(request.robot, 0):
                # Overtaken on its way: a server does not go back to an older observation.
                self._hear(Dropped(request, DropReason.SUPERSEDED))
                continue
            newest[request.robot] = request.number
            self._engine.submit(request)
        self._engine.drain(DRAIN)
        self._engine.resume()
        if not self._engine.alive:
            raise BenchError('the engine has ended by a fault, see the log')
        if self._doubled:
            raise BenchError(f'{self._doubled} requests had more than one outcome')
        return [settle(trip, self._outcomes.pop(trip.key, None), start,
                       lags.get(trip.key, 0.0)) for trip in trips]

    def close(self) -> None:
        """Stop the engine."""
        self._engine.stop()

    def _request(self, trip: Trip, start: float, now: float) -> Request:
        """
        Form the request of a trip as a server would.

        Its deadline is the observation's time plus the SLO: the stamp tells a server how long
        the way to it took, while of the way back, which lies ahead, it knows nothing.
        """
        robot, number = trip.arrival.robot, trip.arrival.number
        return Request(robot.name, number, robot.model, self._sources[robot.model].make(), now,
                       start + trip.arrival.at + robot.slo)

    def _hear(self, outcome: Outcome) -> None:
        key = outcome.request.robot, outcome.request.number
        self._doubled += key in self._outcomes
        self._outcomes[key] = outcome
