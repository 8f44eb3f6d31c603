# SPDX-License-Identifier: Apache-2.0
"""
A whole factory as a way of serving: servers, manager and robots in processes of their own.

Observations travel as messages, so everything that a robot waits for is part of its latency.
Knows what is asked of whom and when; not what engines, managers and robots do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import TypeVar

from robion_ros.bench.arrivals import make_robots
from robion_ros.bench.network import Trip
from robion_ros.bench.records import Ending, Record
from robion_ros.bench.settings import BenchError
from robion_ros.config import FactoryConfig
from robion_ros.core import Timings
from robion_ros.factory_file import dump
from robion_ros.nodes.observer import Observer
from robion_ros.observed import Rebalanced, Snapshot
from robion_ros.processes import environment, factory_processes, parameter, Process
from robion_ros.supervisor import print_line, Supervisor
from robion_ros.traffic_files import Found, Observed, Plan, TrafficFiles

T = TypeVar('T')

START_TIMEOUT = 600.0
"""Until the servers are ready, models loaded, captured and profiled, s."""
MOVE_TIMEOUT = 60.0
"""Until robots are assigned and connected, s."""
END_TIMEOUT = 30.0
"""From the last observation to the last word of every process, s."""
HEADSTART = 0.3
"""From the word to the start of an epoch, s: the robots look for it every 0.05 s."""
LOOK_PERIOD = 0.05
CAPACITY = 4096
"""Of every model, so that the manager accepts whatever is to be measured."""


@dataclass(frozen=True)
class Graph:
    """What is started."""

    factory: FactoryConfig
    """Its models and servers; its robots are replaced."""
    robots: int
    """Most that will be asked for; they are spread over the models."""
    per_process: int = 8
    """Robots of one process."""
    image: tuple[int, int] = (224, 224)
    """Columns and rows of a picture."""
    joint_rate: float = 20.0
    """Joint states of a robot per second, Hz."""
    seed: int = 0
    change: Callable[[Process], Process] = lambda process: process
    """Puts another process in the place of one."""


class GraphServing:
    """A running factory, given one epoch after the other; see Serving."""

    def __init__(self, graph: Graph, folder: str, supervisor: Supervisor, observer: Observer,
                 shares: Mapping[str, Sequence[str]]) -> None:
        """Serve with processes that run; shares has the robots of each that simulates some."""
        self.supervisor = supervisor
        self.start = 0.0
        """Of the newest epoch, s of time.monotonic()."""
        self._factory = graph.factory
        self._folder = folder
        self._observer = observer
        self._shares = shares
        self._populations: Mapping[str, list[str]] | None = None
        self._number = 0

    def wait_until_ready(self) -> None:
        """Wait until the servers are active and the manager takes orders."""
        self._until('servers', START_TIMEOUT, lambda: all(
            name in self._seen.servers and self._seen.servers[name].state == 'active'
            for name in self._factory.servers))
        self._until('services', MOVE_TIMEOUT, lambda: not self._observer.missing())

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        """Serve the requests of one epoch; see Serving."""
        if any(trip.up != 0.0 or trip.down != 0.0 for trip in trips):
            raise BenchError('messages of a factory take their own time: leave --network out')
        ordered = sorted(trips, key=lambda trip: trip.arrival.at)
        self._assign(ordered)
        plan = {trip.arrival.robot.name: list[float]() for trip in ordered}
        for trip in ordered:
            plan[trip.arrival.robot.name].append(trip.arrival.at)
        found = self._play(plan)
        if mistakes := sum(share.mistakes for share in found):
            raise BenchError(f'{mistakes} chunks were wrong or came twice, see the log')
        observed = {robot: iter(items) for share in found
                    for robot, items in share.robots.items()}
        return [make_record(trip, self.start, next(observed[trip.arrival.robot.name]))
                for trip in ordered]

    @property
    def _seen(self) -> Snapshot:
        return self._observer.snapshot()

    def _assign(self, trips: Sequence[Trip]) -> None:
        """Let the manager assign the robots of these trips, and no others."""
        populations: dict[str, dict[str, None]] = {model: {} for model in self._factory.models}
        for trip in trips:
            populations[trip.arrival.robot.model][trip.arrival.robot.name] = None
        wanted = {model: sorted(robots) for model, robots in populations.items()}
        known = {robot for share in self._shares.values() for robot in share}
        if unknown := {robot for robots in wanted.values() for robot in robots} - known:
            raise BenchError(f'{len(known)} robots are simulated, {len(unknown)} more are asked '
                             'for')
        if wanted == self._populations:
            return
        deadline = monotonic() + MOVE_TIMEOUT
        while not (answer := self._rebalance(wanted)).success:
            if monotonic() > deadline:
                raise BenchError(f'the manager refused: {answer.message}')
            sleep(1.0)  # It may still listen who is there.
        self._populations = wanted

    def _rebalance(self, populations: Mapping[str, Sequence[str]]) -> Rebalanced:
        answer = self._observer.rebalance(populations)
        self._until('an answer of the manager', MOVE_TIMEOUT, answer.done)
        return answer.result()

    def _play(self, plan: Plan) -> Sequence[Found]:
        """Let the robots observe; return what came of it."""
        self._number += 1
        files = TrafficFiles(self._folder, self._number)
        files.write_plan(plan)
        self._until('connections of robots', MOVE_TIMEOUT,
                    lambda: all(map(files.is_ready, self._shares)))
        self.start = monotonic() + HEADSTART
        files.write_start(self.start)
        last = max((times[-1] for times in plan.values() if times), default=0.0)
        self._until('the last chunks', HEADSTART + last + END_TIMEOUT,
                    lambda: all(files.read_found(name) for name in self._shares))
        return [found for name in self._shares if (found := files.read_found(name))]

    def _until(self, what: str, timeout: float, is_so: Callable[[], bool]) -> None:
        """Wait for something as long as every process runs; raise BenchError otherwise."""
        deadline = monotonic() + timeout
        while not is_so():
            ended = [*self.supervisor.over, *(name for name, count
                                              in self.supervisor.restarts.items() if count)]
            if ended:
                raise BenchError(f'{", ".join(ended)} ended before its time, see the log')
            if monotonic() > deadline:
                raise BenchError(f'waited {timeout:g} s in vain for {what}, see the log')
            sleep(LOOK_PERIOD)


def make_record(trip: Trip, start: float, observed: Observed) -> Record:
    """Return what became of a trip."""
    lag = observed.published - start - trip.arrival.at
    if observed.arrived is None:
        return Record(trip.arrival, Ending.UNANSWERED, lag=lag)
    # A chunk does not say how long its request was queued; all that is no stage counts as that.
    timings = Timings(max(0.0, observed.engine - observed.vlm - observed.adit), observed.vlm,
                      observed.adit, observed.engine)
    return Record(trip.arrival, Ending.ANSWERED, observed.arrived - observed.published, lag,
                  timings, observed.batch)


@contextmanager
def open_graph(graph: Graph, say: Callable[[str], None] = print_line) -> Iterator[GraphServing]:
    """
    Start a factory and end it; say gets what its processes print.

    Call it with a ROS_DOMAIN_ID in the environment that no other factory has.
    """
    os.environ.update(environment())
    with TemporaryDirectory(prefix='robion_graph_') as folder:
        factory = populate(graph)
        path = Path(folder, 'factory.yaml')
        path.write_text(dump(factory))
        shares = divide(factory, graph.per_process)
        processes = [*factory_processes(factory, path, 'warn'),
                     *(traffic_process(graph, name, place, len(share), path)
                       for place, (name, share) in enumerate(shares.items()))]
        observer = Observer(factory.servers, factory.manager.name)
        try:
            with Supervisor([graph.change(process) for process in processes],
                            say=say) as supervisor:
                serving = GraphServing(graph, folder, supervisor, observer, shares)
                serving.wait_until_ready()
                yield serving
        finally:
            observer.close()


def populate(graph: Graph) -> FactoryConfig:
    """Return the factory with robots as arrivals.make_robots names and spreads them."""
    models = {name: replace(model, capacity=CAPACITY)
              for name, model in graph.factory.models.items()}
    robots = make_robots({name: model.slo for name, model in models.items()}, graph.robots)
    return replace(graph.factory, models=models, robots={
        name: tuple(robot.name for robot in robots if robot.model == name) for name in models})


def divide(factory: FactoryConfig, most: int) -> Mapping[str, Sequence[str]]:
    """Return the processes that simulate the robots, at most so many each, in the file's order."""
    names = [robot for robots in factory.robots.values() for robot in robots]
    return {f'traffic_{place // most}': names[place:place + most]
            for place in range(0, len(names), most)}


def traffic_process(graph: Graph, name: str, place: int, robots: int, path: Path) -> Process:
    """Return the process that simulates some of the robots."""
    arguments = ['--ros-args', '-r', f'__node:={name}', '--log-level', f'{name}:=warn']
    for key, value in (('config', str(path)), ('folder', str(path.parent)),
                       ('first', place * graph.per_process), ('robots', robots),
                       ('image_width', graph.image[0]), ('image_height', graph.image[1]),
                       ('joint_rate', graph.joint_rate), ('seed', graph.seed)):
        arguments += parameter(key, value)
    return Process(name, 'traffic', tuple(arguments), respawn=False)
