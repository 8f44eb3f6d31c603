# SPDX-License-Identifier: Apache-2.0
"""
The servers of a simulated factory, and which of them answers which robot.

Knows neither plans nor requests.
"""

from collections.abc import Callable, Mapping

from robion_ros.config import FactoryConfig
from robion_ros.core import Outcome
from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.server import SimulatedServer
from robion_ros.simulation.stage_times import StageTimes


class Fleet:
    """Every server of the factory file, each in its present life or dead."""

    def __init__(self, factory: FactoryConfig, times: StageTimes, agenda: Agenda,
                 on_outcome: Callable[[Outcome], None]) -> None:
        self.lives: list[SimulatedServer] = []
        """All there were, in the order in which they started."""
        self._factory, self._times = factory, times
        self._agenda, self._on_outcome = agenda, on_outcome
        self._now: dict[str, SimulatedServer] = {}
        self._seats: dict[str, SimulatedServer] = {}
        for name in factory.servers:
            self.start(name)

    def start(self, name: str) -> SimulatedServer:
        """Start a server, without robots."""
        server = SimulatedServer(name, self._factory.servers[name], self._times, self._agenda,
                                 self._on_outcome)
        self._now[name] = server
        self.lives.append(server)
        return server

    def life(self, name: str) -> SimulatedServer:
        """Return a server in its latest life."""
        return self._now[name]

    def assign(self, server: SimulatedServer, robots: Mapping[str, str]) -> None:
        """Give a server its whole set of robots, each with its model; a dead one hears nothing."""
        if not server.alive:
            return
        for robot in server.robots.keys() - robots.keys():
            if self._seats.get(robot) is server:
                del self._seats[robot]
        self._seats.update(dict.fromkeys(robots, server))
        server.assign(robots)

    def serving(self, robot: str) -> SimulatedServer | None:
        """Return the living server that answers a robot, if there is one."""
        server = self._seats.get(robot)
        return server if server and server.alive else None
