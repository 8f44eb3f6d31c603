# SPDX-License-Identifier: Apache-2.0
"""
A whole factory on virtual time: requests, servers, the manager and what befalls them.

Knows neither files nor how results are shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from robion_ros import words
from robion_ros.bench.network import travel, Trip
from robion_ros.bench.records import Record
from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.events import Kill
from robion_ros.simulation.fleet import Fleet
from robion_ros.simulation.ledger import Ledger
from robion_ros.simulation.manager import Planned, SimulatedManager
from robion_ros.simulation.scenario import Models, Scenario
from robion_ros.simulation.server import SimulatedServer


@dataclass(frozen=True)
class Shortage:
    """Robots without a living server, from a time on, s since the first request may come."""

    at: float
    robots: int
    unserved: int


@dataclass(frozen=True, eq=False)
class Simulated:
    """What came of a scenario; times in s since the first request may come."""

    records: Sequence[Record]
    """Of all requests, also those that do not count."""
    homeless: int
    """Requests that count and no server was there for: of robots left out, or of dead servers."""
    servers: Sequence[SimulatedServer]
    """Every life of every server."""
    plans: Sequence[Planned]
    shortages: Sequence[Shortage]


class Factory:
    """The run of a scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._agenda = Agenda()
        self._ledger = Ledger()
        self._fleet = Fleet(scenario.factory, scenario.times, self._agenda, self._ledger.hear)
        self._manager = SimulatedManager(scenario.factory, self._fleet, self._agenda,
                                         scenario.planning, self._look)
        self._models: Models = {}
        self._homeless = 0
        self._shortages: list[Shortage] = []

    def run(self) -> Simulated:
        """Let all of it happen."""
        scenario, agenda = self._scenario, self._agenda
        trips = travel(scenario.arrivals, scenario.network, scenario.traffic.seed, 0)
        (_, self._models), *changes = scenario.populations
        self._manager.begin(self._models)
        for at, models in changes:
            agenda.at(at, partial(self._change, models))
        for kill in scenario.kills:
            agenda.at(scenario.when(kill.at), partial(self._kill, kill))
        for trip in trips:
            if trip.due < inf:
                agenda.at(trip.due, partial(self._arrive, trip))
        agenda.run()
        return Simulated(self._ledger.close(trips), self._homeless, self._fleet.lives,
                         self._manager.plans, self._shortages)

    def _arrive(self, trip: Trip, now: float) -> None:
        server = self._fleet.serving(trip.arrival.robot.name)
        if server is None:
            self._homeless += trip.arrival.counted
        elif request := self._ledger.open(trip, now):
            server.submit(request)

    def _change(self, models: Models, now: float) -> None:
        self._models = models
        self._manager.change(models, words.count(len(models), 'robot'))
        self._look()

    def _kill(self, kill: Kill, now: float) -> None:
        server = self._fleet.life(kill.server)
        server.die(now)
        self._manager.miss(server)
        if kill.back < inf:
            self._agenda.at(self._scenario.when(kill.back), partial(self._revive, kill.server))
        self._look()

    def _revive(self, name: str, now: float) -> None:
        self._manager.hear(self._fleet.start(name))

    def _look(self) -> None:
        """Count the robots that nobody answers."""
        unserved = sum(self._fleet.serving(robot) is None for robot in self._models)
        shortage = Shortage(self._agenda.now, len(self._models), unserved)
        if self._shortages and self._shortages[-1].at == shortage.at:
            self._shortages.pop()
        self._shortages.append(shortage)
