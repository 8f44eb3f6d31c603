# SPDX-License-Identifier: Apache-2.0
"""
What is simulated: a factory, stage times, traffic, a network and events; and who asks when.

Knows nothing of what comes of it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from robion_ros.bench.arrivals import Arrival, Robot, schedule
from robion_ros.bench.network import Network
from robion_ros.bench.settings import Traffic
from robion_ros.config import check_choice, check_range, FactoryConfig, FieldError
from robion_ros.manager.population import BadPopulation, new_models, Population
from robion_ros.simulation.events import Change, Kill
from robion_ros.simulation.stage_times import StageTimes

Models = Mapping[str, str]
"""The model of each robot."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """One run."""

    factory: FactoryConfig
    times: StageTimes
    """Of the factory's models at every batch of its servers."""
    traffic: Traffic
    """One epoch of it; the rate is that of each model."""
    network: Network | None = None
    kills: Sequence[Kill] = ()
    changes: Sequence[Change] = ()
    planning: float | None = None
    """What a plan takes, s; None: as long as the solver takes here."""

    def __post_init__(self) -> None:
        lives: dict[str, float] = {}
        for kill in sorted(self.kills, key=lambda kill: kill.at):
            check_choice('kill', kill.server, self.factory.servers, 'server')
            check_range('kill', kill.at, 0, self.traffic.seconds)
            if kill.at <= lives.get(kill.server, 0.0):
                raise FieldError('kill', f'{kill.server} is dead already at {kill.at:g} s')
            lives[kill.server] = kill.back
        for change in self.changes:
            check_choice('population', change.model, self.factory.models, 'model')
            check_range('population', change.at, 0, self.traffic.seconds)

    def when(self, at: float) -> float:
        """Return when something happens, s since the first request may come."""
        return at + self.traffic.lead

    @property
    def populations(self) -> Sequence[tuple[float, Models]]:
        """The robots there are from a time on, s since the first request may come."""
        times: defaultdict[float, list[Population]] = defaultdict(list)
        for change in self.changes:
            at = self.when(change.at) if change.at else 0.0
            times[at].append(Population(change.model, change.count))
        models: Models = {robot: model for model, robots in self.factory.robots.items()
                          for robot in robots}
        found = [] if 0.0 in times else [(0.0, models)]
        for at in sorted(times):
            try:
                models = new_models(self.factory, models, times[at])
            except BadPopulation as error:
                raise FieldError('population', str(error)) from None
            found.append((at, models))
        return found

    @property
    def arrivals(self) -> tuple[Arrival, ...]:
        """
        The observations of all robots while they are there, in order.

        Phases are drawn for each model apart, with seeds one after the other.
        """
        present: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        populations = self.populations
        end = self.when(self.traffic.seconds) + max(
            1 / model.rate for model in self.factory.models.values())
        for (since, models), until in zip(
                populations, [*(at for at, _ in populations[1:]), end], strict=True):
            for robot, kind in models.items():
                present[kind, robot].append((since, until))
        found: list[Arrival] = []
        for index, (name, model) in enumerate(self.factory.models.items()):
            robots = [Robot(robot, name, model.slo) for kind, robot in present if kind == name]
            traffic = replace(self.traffic, rate=model.rate, seed=self.traffic.seed + index,
                              seconds=max(self.traffic.seconds, 1 / model.rate))
            found += [arrival for arrival in schedule(robots, traffic, 0)
                      if any(since <= arrival.at < until
                             for since, until in present[name, arrival.robot.name])]
        return tuple(sorted(found, key=lambda arrival: arrival.at))
