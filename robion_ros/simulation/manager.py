# SPDX-License-Identifier: Apache-2.0
"""
The manager on virtual time: what it believes of the servers, its plans, and their three phases.

Plans and phases are those of manager/. It plans one thing after another, as the manager node does,
and learns that a server is dead when its timeout has passed. Knows neither requests nor stages.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from robion_ros.config import FactoryConfig
from robion_ros.manager.assignment import moved
from robion_ros.manager.errors import PlanError
from robion_ros.manager.handover import Duties, moving, Phases, phases, Place
from robion_ros.manager.homes import Homes
from robion_ros.manager.planner import FactoryPlan, plan_most
from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.fleet import Fleet
from robion_ros.simulation.server import SimulatedServer

SETTLE_TIME = 1.0
"""How long a server that came back is waited for others with, s: settle_time of the node."""


@dataclass(frozen=True)
class Planned:
    """A plan, and what came of it; times in s."""

    why: tuple[str, ...]
    caused: float
    """When the first of that happened."""
    asked: float
    """When planning began."""
    in_force: float
    """When the last phase had ended; the first server was called after solve_s."""
    robots: int
    left_out: Mapping[str, int]
    """Robots by model that no server answers."""
    placed: int
    """Robots that nobody had answered."""
    moved: int
    """Robots that had a server and now have another one or another model."""
    objective: int
    bound: int
    optimal: bool
    solve_s: float
    """What the solver took here, on a real clock."""
    problem: str = ''


@dataclass(frozen=True)
class _Asked:
    """What a plan is made for."""

    why: tuple[str, ...]
    caused: float
    at: float
    models: Mapping[str, str]
    """Of each robot."""
    running: Mapping[str, Place]
    lives: Mapping[str, SimulatedServer]
    """The servers that are believed to live."""


class SimulatedManager:
    """A manager that has no process of its own."""

    def __init__(self, factory: FactoryConfig, fleet: Fleet, agenda: Agenda,
                 planning: float | None, on_call: Callable[[], None]) -> None:
        """
        Know all servers; on_call is called after servers got other robots.

        planning is what a plan takes, s; None: as long as it takes here.
        """
        self.plans: list[Planned] = []
        self._factory, self._fleet, self._agenda = factory, fleet, agenda
        self._planning, self._on_call = planning, on_call
        self._models: dict[str, str] = {}
        self._alive = {name: fleet.life(name) for name in factory.servers}
        """The lives that it believes in."""
        self._running: dict[str, Place] = {}
        self._homes = Homes()
        self._reasons: list[tuple[float, str]] = []
        self._lost = False
        """Whether a server was lost since the last plan."""
        self._busy = False

    def begin(self, models: Mapping[str, str]) -> None:
        """Put a first plan for robots, each with its model, into force at once."""
        self._models = dict(models)
        self._reasons = [(self._agenda.now, 'start')]
        self._plan(at_once=True)

    def change(self, models: Mapping[str, str], why: str) -> None:
        """Plan for other robots from now on."""
        self._models = dict(models)
        self._want(self._agenda.now, why)

    def miss(self, server: SimulatedServer) -> None:
        """Hear nothing more of a server; take it as dead when the timeout has passed."""
        def notice(now: float) -> None:
            if self._alive.get(server.name) is server:
                self._bury(server)
                self._want(server.died, f'{server.name} died')
        self._agenda.at(server.died + self._factory.manager.server_timeout, notice)

    def hear(self, server: SimulatedServer) -> None:
        """Hear of a server that has started."""
        before = self._alive.get(server.name)
        if before:  # It was back before anybody noticed.
            self._bury(before)
        self._alive[server.name] = server
        complete = len(self._alive) == len(self._factory.servers)
        started = self._agenda.now
        self._agenda.at(started + (0.0 if before or complete else SETTLE_TIME),
                        lambda now: self._want(started, f'{server.name} came back'))

    def _bury(self, server: SimulatedServer) -> None:
        del self._alive[server.name]
        self._lost = True
        left = {robot: place for robot, place in self._running.items()
                if place.server != server.name}
        self._homes.lose(self._running, left)
        self._running = left

    def _want(self, since: float, why: str) -> None:
        self._reasons.append((since, why))
        if not self._busy:
            self._plan()

    def _plan(self, at_once: bool = False) -> None:
        """Plan for what is known now, for all reasons that there are."""
        now = self._agenda.now
        reasons, self._reasons = self._reasons, []
        urgent, self._lost = self._lost, False
        asked = _Asked(tuple(why for _, why in reasons), min(since for since, _ in reasons), now,
                       dict(self._models), dict(self._running), dict(self._alive))
        hosts = {name: server.models for name, server in self._alive.items()}
        loaded = {model for models in hosts.values() for model in models}
        models = {robot: model for robot, model in self._models.items() if model in loaded}
        try:
            plan, unserved = plan_most(self._factory, models, hosts, asked.running,
                                       homes=self._homes.open(asked.lives), urgent=urgent)
        except PlanError as error:  # What runs goes on.
            self._note(asked, None, str(error))
            return
        problem = str(unserved) if unserved else ''
        if at_once:
            self._prepare(asked, plan, problem, now)
            return
        self._busy = True
        took = plan.traffic.solve_s if self._planning is None else self._planning
        self._agenda.at(now + took, partial(self._prepare, asked, plan, problem))

    def _prepare(self, asked: _Asked, plan: FactoryPlan, problem: str, now: float) -> None:
        """Begin to put a plan into force."""
        steps = phases(asked.running, plan.places, asked.lives)
        self._call(steps.prepare, asked)
        # Until every robot that moves has been heard by its next server.
        wait = max((1 / self._factory.models[plan.places[robot].model].rate
                    for robot in moving(asked.running, plan.places, asked.lives)), default=0.0)
        take_over = partial(self._take_over, asked, plan, problem, steps)
        if wait:
            self._agenda.at(now + wait, take_over)
        else:
            take_over(now)

    def _take_over(self, asked: _Asked, plan: FactoryPlan, problem: str, steps: Phases,
                   now: float) -> None:
        """Put a plan into force, and turn to what has happened meanwhile."""
        self._call(steps.release, asked)
        self._call(steps.take_over, asked)
        lasting = {name for name, life in asked.lives.items() if self._alive.get(name) is life}
        self._running = {robot: place for robot, place in plan.places.items()
                         if place.server in lasting}
        self._homes.lose(plan.places, self._running)
        self._homes.settle(self._models, lasting)
        self._note(asked, plan, problem)
        self._busy = False
        if self._reasons:
            self._plan()

    def _call(self, duties: Duties, asked: _Asked) -> None:
        """Give servers their robots in one phase."""
        for name, robots in duties.items():
            self._fleet.assign(asked.lives[name], {
                robot: duty.model for robot, duty in robots.items() if not duty.standby})
        self._on_call()

    def _note(self, asked: _Asked, plan: FactoryPlan | None, problem: str) -> None:
        """Keep what a plan came to."""
        places = plan.places if plan else asked.running
        self.plans.append(Planned(
            asked.why, asked.caused, asked.at, self._agenda.now, len(asked.models),
            dict(sorted(Counter(model for robot, model in asked.models.items()
                                if robot not in places).items())),
            sum(robot not in asked.running for robot in places),
            moved(plan.moves) if plan else 0,
            plan.traffic.objective if plan else 0, plan.traffic.bound if plan else 0,
            plan.traffic.optimal if plan else False, plan.traffic.solve_s if plan else 0.0,
            problem))
