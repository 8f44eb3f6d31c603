# SPDX-License-Identifier: Apache-2.0
"""
The engine: submitted requests wait, a thread admits them batch by batch, outcomes are called out.

Every request submitted ends in exactly one outcome. The engine knows neither topics nor where
robots come from; it sees the names of the robots that may submit.
"""

from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from threading import Condition, Lock, Thread, TIMEOUT_MAX
from time import monotonic

from robion_ros.config import ServerConfig
from robion_ros.core import Dropped, DropReason, Outcome, Request
from robion_ros.engine.answers import describe
from robion_ros.engine.batch import Batch, make_ticket, Ticket
from robion_ros.engine.device import Device, Prepared
from robion_ros.engine.forming import form
from robion_ros.engine.in_flight import approach, InFlight
from robion_ros.engine.lockstep_times import Durations, LockstepTimes
from robion_ros.engine.pace import Pace
from robion_ros.engine.pipelines import Pipeline, PIPELINES
from robion_ros.engine.policies import POLICIES
from robion_ros.engine.queues import Queues
from robion_ros.engine.stats import EngineStats
from robion_ros.engine.warm_up import Trial, warm_up
from robion_ros.models.protocol import Model

LOOK = 0.5
"""How often whoever waits for the engine's thread looks whether it still runs, s."""


class Engine:
    """
    A set of loaded models on one device.

    A constructed engine is ready: every model has run once at every batch size. Models may come
    and go while it serves. on_outcome gets the one outcome of every request, from the engine's
    thread or a caller's; it must neither block nor raise.
    """

    def __init__(self, models: MutableMapping[str, Model], pipeline: Pipeline,
                 server: ServerConfig, on_outcome: Callable[[Outcome], None],
                 times: Durations | None = None) -> None:
        """
        Take a pipeline of the models over; raise RuntimeError if one cannot run in it.

        models is what the pipeline looks them up in, and changes with add and remove. times are
        what is known of its locksteps before the first.
        """
        self._models = models
        self._late = server.late
        self._on_outcome = on_outcome
        self._queues = Queues(models, POLICIES[server.policy], server.max_batch)
        self._pipeline = pipeline
        self._max_batch = server.max_batch
        self._one_change = Lock()
        """Held while a model comes or goes."""
        self._changed = Condition()
        """Guards everything below."""
        self._trial: Trial | None = None
        """Of the model that comes."""
        self._running: frozenset[str] = frozenset()
        """Models of what is in flight."""
        self._robots: Mapping[str, str] = {}
        self._epoch = 0
        self._accepting = True
        self._stopping = False
        self._open = Counter[str]()
        """By model: requests accepted whose outcome has not been called out."""
        self._times = LockstepTimes(times or {})
        self._failed = False
        """Whether a request failed in the lockstep that runs."""
        try:
            self.pace = Pace(warm_up(self._pipeline, models, server.max_batch))
        except Exception:
            self._pipeline.close()
            raise
        self._thread = Thread(target=self._run, name='engine', daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request; its preprocessing runs in the caller's thread."""
        try:
            ticket = make_ticket(self._models[request.model], request, monotonic())
        except KeyboardInterrupt:  # Ctrl-C, where this runs in a main thread.
            raise
        except BaseException as error:  # Also SystemExit, which would end the caller's thread.
            self._on_outcome(Dropped(request, DropReason.FAILED,
                                     f'model {request.model}: preprocessing: {describe(error)}'))
            return
        with self._changed:
            refusal = self._refusal(request)
            replaced = None if refusal else self._queues.put(ticket)
            self._open[request.model] += not refusal
            self._changed.notify_all()
        if refusal:
            self._on_outcome(Dropped(request, DropReason.CANCELLED, refusal))
        elif replaced:
            self._drop(replaced, DropReason.SUPERSEDED, 'a newer observation came')

    def assign(self, epoch: int, robots: Mapping[str, str]) -> None:
        """
        Give the whole set of robots that may submit, each with its model.

        In force between two locksteps, since a batch is formed whole under the same lock.
        Requests accepted before are still answered, by the model that accepted them; first of
        all those of robots that leave, which may get a newer answer elsewhere.
        """
        with self._changed:
            self._epoch, self._robots = epoch, dict(robots)
            self._queues.hasten(lambda robot, model: self._robots.get(robot) != model)

    def cancel(self, robot: str, detail: str) -> None:
        """Withdraw the robot's requests that have not started."""
        with self._changed:
            tickets = self._queues.remove(robot)
        for ticket in tickets:
            self._drop(ticket, DropReason.CANCELLED, detail)

    def drain(self, timeout: float) -> bool:
        """
        Accept no more and wait until the outcome of all that was accepted has been called out.

        Return False if timeout s were short.
        """
        with self._changed:
            self._accepting = False
            return self._changed.wait_for(lambda: not self._open.total(), timeout)

    def add(self, name: str, model: Model, times: Durations | None = None) -> None:
        """
        Take one more model, once it has run at every batch size between what is served.

        times are what is known of its locksteps. Blocks for as many locksteps as there are batch
        sizes. Changes nothing, and raises RuntimeError, if the model cannot run.
        """
        with self._one_change:
            assert name not in self._models
            trial = Trial(name, model, self._max_batch)
            with self._changed:
                self._models[name], self._trial = model, trial
                self._times.know(times or {})
                self._changed.notify_all()
                while (not trial.ended or name in self._running) and self.alive:
                    self._changed.wait(LOOK)
                self._trial = None
                if not (fault := trial.fault or ('' if trial.ended else 'the engine has stopped')):
                    self._queues.add(name)
                    return
                self._forget(name)
            raise RuntimeError(fault)

    def remove(self, name: str, timeout: float) -> bool:
        """
        Let a model go that no robot is assigned to, when all that it accepted has ended.

        Return False, and change nothing, if timeout s were short. Raise ValueError if robots are
        assigned to it. Whatever it had on the device is done then.
        """
        def users() -> list[str]:
            return [robot for robot, model in self._robots.items() if model == name]

        with self._one_change, self._changed:
            ended = self._changed.wait_for(
                lambda: users() or not (self._open[name] or name in self._running), timeout)
            if users():
                raise ValueError(f'{", ".join(users())} are served with model {name}')
            if ended:
                self._queues.drop(name)
                self._forget(name)
            return bool(ended)

    def resume(self) -> None:
        """Accept again after drain; an engine that was stopped stays so."""
        with self._changed:
            self._accepting = not self._stopping

    def stop(self, timeout: float = TIMEOUT_MAX) -> bool:
        """
        Cancel what waits, finish what runs, end the thread and free the stages.

        Return False, and leave thread and stages as they are, if timeout s were short.
        """
        with self._changed:
            self._accepting = False
            self._stopping = True
            tickets = self._queues.clear()
            self._changed.notify_all()
        for ticket in tickets:
            self._drop(ticket, DropReason.CANCELLED, 'the engine stopped')
        self._thread.join(min(timeout, TIMEOUT_MAX))
        if self.alive:
            return False
        self._pipeline.close()
        return True

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs; it ends by stop, or by a fault."""
        return self._thread.is_alive()

    def stats(self) -> EngineStats:
        """Return what the engine is doing."""
        with self._changed:
            return EngineStats(len(self._queues), self.pace.locksteps, self.pace.usual,
                               self._epoch)

    def _run(self) -> None:
        in_flight: InFlight | None = None
        goes_on = True
        while goes_on:
            in_flight, goes_on = self._step(in_flight)
            with self._changed:  # Now that nothing holds what has ended: remove waits for it.
                self._running = in_flight.models if in_flight else frozenset()
                self._changed.notify_all()

    def _step(self, in_flight: InFlight | None) -> tuple[InFlight | None, bool]:
        """Run one lockstep; return what is in flight then, and False at the end of all."""
        self.pace.go_on()
        if in_flight:
            approach(in_flight, self._times.least(in_flight.loads), self._answer)
        batch, shed = self._admit(in_flight)
        launched = None
        if batch or in_flight:
            launched = self._pipeline.tick(batch, in_flight, self._answer)
            self._record(in_flight)
        for ticket in shed:
            self._drop(ticket, DropReason.SHED, 'its deadline could not be met')
        return launched, bool(batch or in_flight or shed)

    def _admit(self, in_flight: InFlight | None) -> tuple[Batch | None, tuple[Ticket, ...]]:
        """Form a batch, shed what is late if so told; wait while there is nothing at all to do."""
        with self._changed:
            while True:
                now = self.pace.go_on()
                if self._trial and (batch := self._trial.next(now)):
                    return batch, ()
                batch, shed = form(self._queues, self._times, self._late, now, in_flight)
                if batch or shed or in_flight or self._stopping:
                    return batch, shed
                self.pace.rest()
                self._changed.wait()

    def _refusal(self, request: Request) -> str:
        """Return why a request is not accepted, '' if it is."""
        if not self._accepting or not self.alive:
            return 'the engine accepts no requests: it drains, or was stopped'
        if self._robots.get(request.robot) != request.model:
            return f'the robot is not served here with model {request.model}'
        return ''

    def _record(self, ended: InFlight | None) -> None:
        """Remember how long what has ended took."""
        with self._changed:
            if ended and ended.seconds:
                self.pace.count(ended.seconds, tried=self._trial is not None)
                if not self._failed:  # One that failed may have ended early.
                    self._times.learn(*ended.loads, ended.seconds, monotonic())
            self._failed = False

    def _answer(self, outcome: Outcome) -> None:
        """Call out the outcome of a request that was accepted, if it is not of a trial."""
        trial = self._trial
        tried = trial is not None and trial.takes(outcome)
        if not tried:
            self._on_outcome(outcome)
        with self._changed:
            self._failed |= isinstance(outcome, Dropped) and outcome.reason is DropReason.FAILED
            self._open[outcome.request.model] -= not tried
            self._changed.notify_all()  # drain, add and remove wait for this

    def _forget(self, name: str) -> None:
        """Remove all traces of a model."""
        del self._models[name]
        self._open.pop(name, None)
        self._times.forget(name)

    def _drop(self, ticket: Ticket, reason: DropReason, detail: str) -> None:
        self._answer(Dropped(ticket.request, reason, detail))


def make_engine(models: Mapping[str, Model], device: Device, server: ServerConfig,
                on_outcome: Callable[[Outcome], None]) -> Engine:
    """Make the engine that a server's part of the factory file describes."""
    ready = device.prepare(models, server.max_batch, server.engine == 'lockstep')
    return start_engine(ready, device, server, on_outcome)


def start_engine(ready: Prepared, device: Device, server: ServerConfig,
                 on_outcome: Callable[[Outcome], None]) -> Engine:
    """Make the engine of models that are ready."""
    return Engine(ready.models, PIPELINES[server.engine](ready.models, device), server, on_outcome,
                  ready.times)
