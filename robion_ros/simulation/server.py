# SPDX-License-Identifier: Apache-2.0
"""
One server on virtual time: the engine's queues, late rule and pipeline, without its threads.

Its thread runs ahead of the factory only where it waits for stages, whose end is known: chunks
are answered then, with the time at which they are finished. Knows neither the manager nor the
network.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, cast

import torch

from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk, Dropped, DropReason, Outcome, Request
from robion_ros.engine.batch import Ticket
from robion_ros.engine.cuda import LEAD
from robion_ros.engine.forming import form
from robion_ros.engine.in_flight import conclude, due, InFlight
from robion_ros.engine.lockstep_times import LockstepTimes
from robion_ros.engine.pipelines import PIPELINES
from robion_ros.engine.policies import POLICIES
from robion_ros.engine.queues import Queues
from robion_ros.models.protocol import Model
from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.device import BLOCK, VirtualClock, VirtualDevice, VirtualModel
from robion_ros.simulation.stage_times import StageTimes

NOTHING = torch.zeros(0)


@dataclass
class Served:
    """What a server has done."""

    answered: int = 0
    """Chunks."""
    locksteps: int = 0
    busy: float = 0.0
    """Time in locksteps, s."""
    paired: float = 0.0
    """Of it in those with both stages, s."""
    batches: int = 0
    batched: int = 0
    """Requests in batches."""


class SimulatedServer:
    """A server from its start to its death."""

    def __init__(self, name: str, config: ServerConfig, times: StageTimes, agenda: Agenda,
                 on_outcome: Callable[[Outcome], None]) -> None:
        """Start now; on_outcome gets at most one outcome of each request."""
        self.name = name
        self.models = config.models
        self.robots: Mapping[str, str] = {}
        """Those that it answers, each with its model."""
        self.served = Served()
        self.started, self.died = agenda.now, inf
        """s."""
        self._agenda, self._on_outcome = agenda, on_outcome
        self._late = config.late
        self._preprocess = times.preprocess
        gpu = config.device.partition(':')[0] == 'cuda'
        self._clock = VirtualClock(agenda.now)
        device = VirtualDevice(self._clock, LEAD if gpu else 0.0, times.gap)
        models = {name: cast(Model, VirtualModel(name, times, device.spend))
                  for name in config.models}
        self._pipeline = PIPELINES[config.engine](models, device, self._clock)
        self._queues = Queues(models, POLICIES[config.policy], config.max_batch)
        # As an engine is told by its device: see Prepared.times of each.
        self._times = LockstepTimes(times.stored if gpu and config.engine == 'lockstep' else {})
        self._in_flight: InFlight | None = None
        self._idle = True
        self._free = 0.0
        """When the thread that preprocesses has nothing to do, s."""

    @property
    def alive(self) -> bool:
        """Whether it has not died yet."""
        return self._agenda.now < self.died

    def die(self, now: float) -> None:
        """Answer nothing from now on."""
        self.died = now

    def assign(self, robots: Mapping[str, str]) -> None:
        """Take the whole set of robots to answer; those that leave are answered first."""
        self.robots = dict(robots)
        self._queues.hasten(lambda robot, model: self.robots.get(robot) != model)

    def submit(self, request: Request) -> None:
        """Take a request that arrives now."""
        now = self._agenda.now
        begin = max(now, self._free)
        self._free = begin + self._preprocess
        ticket = Ticket(request, {}, NOTHING, begin, BLOCK)
        if self._free > now:
            self._agenda.at(self._free, partial(self._put, ticket))
        else:
            self._put(ticket, now)

    def _put(self, ticket: Ticket, now: float) -> None:
        """Queue a request that is ready."""
        if not self.alive:
            return
        if replaced := self._queues.put(ticket):
            self._drop(replaced, DropReason.SUPERSEDED)
        if self._idle:
            self._idle = False
            self._agenda.at(now, self._step)

    def _step(self, now: float) -> None:
        """Go once around the loop of an engine's thread; see Engine._run."""
        if not self.alive:
            return
        self._clock.now = now
        batch, shed = form(self._queues, self._times, self._late, now, self._in_flight)
        if batch:
            self.served.batches += 1
            self.served.batched += len(batch.tickets)
        if batch or self._in_flight:
            ended, self._in_flight = self._in_flight, self._pipeline.tick(
                batch, self._in_flight, self._answer)
            self._record(ended)
        elif not shed:
            self._idle = True
            return
        for ticket in shed:
            self._drop(ticket, DropReason.SHED)
        if self._in_flight:
            self._approach(self._in_flight)
        self._agenda.at(self._clock.now, self._step)

    def _approach(self, in_flight: InFlight) -> None:
        """Set the clock to when the successor is launched; answer what ends until then."""
        until = due(in_flight, self._times.least(in_flight.loads))
        if until == inf:
            conclude(in_flight, self._answer)
            return
        stages: Any = in_flight.stages
        until = min(until, max(stage.end for stage in stages))
        leaving: Any = in_flight.leaving
        if leaving and leaving.adit.end <= until:
            leaving.answer(self._answer)
        self._clock.now = max(self._clock.now, until)

    def _record(self, ended: InFlight | None) -> None:
        """Remember how long what has ended took."""
        if ended and ended.seconds:
            self._times.learn(*ended.loads, ended.seconds, self._clock.now)
            self.served.locksteps += 1
            self.served.busy += ended.seconds
            self.served.paired += ended.seconds if all(ended.loads) else 0.0

    def _answer(self, outcome: Outcome) -> None:
        """Give an outcome on when it is there, unless the server dies before."""
        end = outcome.finished if isinstance(outcome, ActionChunk) else self._clock.now
        self._agenda.at(end, partial(self._deliver, outcome))

    def _deliver(self, outcome: Outcome, now: float) -> None:
        if self.alive:
            self.served.answered += 1
            self._on_outcome(outcome)

    def _drop(self, ticket: Ticket, reason: DropReason) -> None:
        self._on_outcome(Dropped(ticket.request, reason))
