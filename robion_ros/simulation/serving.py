# SPDX-License-Identifier: Apache-2.0
"""
One simulated server as a way of serving, so that `robion bench`'s trials measure it as an engine.

Knows neither what is measured nor where times come from.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf

from robion_ros.bench.network import Trip
from robion_ros.bench.records import Record
from robion_ros.bench.serving import Serving
from robion_ros.config import ServerConfig
from robion_ros.core import Outcome
from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.ledger import Ledger
from robion_ros.simulation.server import SimulatedServer
from robion_ros.simulation.stage_times import StageTimes


class SimulatedServing:
    """A server that goes on from epoch to epoch, as an engine does."""

    def __init__(self, config: ServerConfig, times: StageTimes) -> None:
        """Start a server with the stage times of its models."""
        self._agenda = Agenda()
        self._ledger = Ledger()
        self._server = SimulatedServer('server', config, times, self._agenda, self._hear)

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        """Serve the requests of one epoch on virtual time; see bench.serving.Serving."""
        start = self._agenda.now
        self._ledger = Ledger(start)
        self._server.assign({trip.arrival.robot.name: trip.arrival.robot.model
                             for trip in trips})
        for trip in trips:
            if trip.due < inf:
                self._agenda.at(start + trip.due, partial(self._arrive, trip))
        self._agenda.run()
        return self._ledger.close(trips)

    def _arrive(self, trip: Trip, now: float) -> None:
        if request := self._ledger.open(trip, now):
            self._server.submit(request)

    def _hear(self, outcome: Outcome) -> None:
        self._ledger.hear(outcome)


@contextmanager
def open_simulated(config: ServerConfig, times: StageTimes) -> Iterator[Serving]:
    """Serve with a simulated server."""
    yield SimulatedServing(config, times)
