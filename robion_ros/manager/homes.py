# SPDX-License-Identifier: Apache-2.0
"""
Where robots were before servers were lost, so that they go back when those serve again.

Knows neither why a server was lost nor what a plan is worth.
"""

from collections.abc import Collection, Mapping

from robion_ros.manager.handover import Place


class Homes:
    """The places of all robots before the first loss, until no server is lost any more."""

    def __init__(self) -> None:
        self._homes: dict[str, Place] = {}
        self._lost: set[str] = set()
        """Servers."""

    def lose(self, before: Mapping[str, Place], now: Mapping[str, Place]) -> None:
        """Note who is answered no more where robots were before; who is away has a home."""
        if lost := {place.server for robot, place in before.items() if robot not in now}:
            self._lost |= lost
            self._homes = {**before, **self._homes}

    def open(self, servers: Collection[str]) -> dict[str, Place]:
        """
        Return the homes that robots can go back to when these servers serve.

        Who had to make room for others goes back when all servers are there again.
        """
        back = self._lost.intersection(servers)
        return {robot: home for robot, home in self._homes.items()
                if home.server in back or (back == self._lost and home.server in servers)}

    def settle(self, models: Mapping[str, str], servers: Collection[str]) -> None:
        """Forget robots that left or have another model; servers do as planned, so are back."""
        self._lost.difference_update(servers)
        self._homes = {robot: home for robot, home in self._homes.items()
                       if self._lost and models.get(robot) == home.model}
