# SPDX-License-Identifier: Apache-2.0
"""
Servers of a factory file as engines in processes of their own, for one measurement after another.

They run at the same time, each on its device, or one after the other on one device, as if each
had one of its own. Knows neither robots nor how they are divided.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, ExitStack, suppress
import logging
from multiprocessing.connection import Connection
import sys
from typing import Any

from robion_ros.bench.engines import Engines, make_sources
from robion_ros.bench.modes import ModeOptions
from robion_ros.bench.network import Trip
from robion_ros.bench.prepared import prepare
from robion_ros.bench.records import Ending, Record
from robion_ros.bench.serving import Serving
from robion_ros.bench.settings import BenchError
from robion_ros.bench.spawned import spawned
from robion_ros.config import FactoryConfig

PICTURE = 224
"""Rows and columns of what cameras see."""
ENDED = 'the process of {} has ended'


class Worker:
    """One server's engine, seen from the process that drives it."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self._connection = connection

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        """Serve the requests of one epoch; see Serving."""
        try:
            self._connection.send(trips)
        except OSError:
            raise BenchError(ENDED.format(self.name)) from None
        return list(self.listen())

    def listen(self) -> Any:
        """Return what the process says next; raise BenchError where it has failed or ended."""
        try:
            word, said = self._connection.recv()
        except (EOFError, OSError):
            raise BenchError(ENDED.format(self.name)) from None
        if word == 'failed':
            raise BenchError(f'{self.name}: {said}')
        return said


class Divided:
    """Servers among which robots are divided, as one way of serving."""

    def __init__(self, servers: Mapping[str, Serving], in_turn: bool,
                 seats: Mapping[str, str]) -> None:
        """Serve robots by the servers in seats, by name; without one they are not answered."""
        self._servers, self._in_turn, self._seats = servers, in_turn, seats

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        """Serve the requests of one epoch; see Serving."""
        parts: dict[str, list[Trip]] = {}
        for trip in trips:
            parts.setdefault(self._seats.get(trip.arrival.robot.name, ''), []).append(trip)
        records = [Record(trip.arrival, Ending.UNANSWERED) for trip in parts.pop('', ())]
        with ThreadPoolExecutor(1 if self._in_turn else len(self._servers)) as pool:
            for found in pool.map(lambda name: self._servers[name].run(parts[name]), parts):
                records += found
        return records


@contextmanager
def open_workers(factory: FactoryConfig, in_turn: bool, seed: int) -> Iterator[
        Mapping[str, Worker]]:
    """Make every server of a factory file ready in a process of its own; end them at last."""
    with ExitStack() as stack:
        workers = {}
        for name in factory.servers:
            connection = stack.enter_context(spawned(work, factory, name, seed))
            workers[name] = Worker(name, connection)
            if in_turn:
                workers[name].listen()  # Of two that share a device each would disturb the other.
        if not in_turn:
            for worker in workers.values():
                worker.listen()
        yield workers


def work(connection: Any, factory: FactoryConfig, name: str, seed: int) -> None:
    """Be a server in a process of its own until nobody asks any more."""
    logging.basicConfig(level=logging.INFO, format=f'{name}: %(message)s', stream=sys.stderr)
    server = factory.servers[name]
    prepared = prepare({model: factory.models[model] for model in server.models},
                       server.device, server.max_batch, server.engine == 'lockstep')
    engines = Engines(prepared, make_sources(prepared, PICTURE, PICTURE, seed), server.late,
                      ModeOptions())
    connection.send(('ready', None))
    with engines.serve(server.engine, server.policy) as serving, suppress(EOFError):
        while True:
            connection.send(('records', serving.run(connection.recv())))
