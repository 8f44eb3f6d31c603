# SPDX-License-Identifier: Apache-2.0
"""
Measures capacities on several devices side by side: one process for each, one model at a time.

Knows neither what is known already nor how results are shown.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from time import sleep
from typing import Any

from robion_ros.bench.drive import never
from robion_ros.bench.prepared import prepare
from robion_ros.bench.settings import BenchError
from robion_ros.bench.spawned import spawned
from robion_ros.bench.sustained import measure_capacity
from robion_ros.commands.capacities import Place, Wanted
from robion_ros.config import FactoryConfig
from robion_ros.engine.capacities import Capacity, obtain
from robion_ros.engine.profile import Progress

LOOK_PERIOD = 0.5
"""How often it is looked whether a server that measures the same is done, s."""


@dataclass(frozen=True)
class Job:
    """What one process measures, in turn, and how."""

    factory: FactoryConfig
    device: str
    wanted: Mapping[Place, Wanted]
    again: bool
    epochs: int
    seconds: float


def divide(wanted: Mapping[Place, Wanted]) -> Mapping[str, Mapping[Place, Wanted]]:
    """
    Give each device its part; none if it has nothing to do.

    What is equal is measured once, by that device of its kind that has the least to do, of several
    its own.
    """
    kinds = {one.device: one.file.path for one in wanted.values()}
    parts: dict[str, dict[Place, Wanted]] = {device: {} for device in kinds}
    seen = set()
    for place, one in wanted.items():
        if one.key not in seen:
            seen.add(one.key)
            device = min((device for device, kind in kinds.items() if kind == one.file.path),
                         key=lambda device: (len(parts[device]), device != one.device))
            parts[device][place] = one
    return {device: part for device, part in parts.items() if part}


def measure_all(jobs: Sequence[Job], report: Progress) -> dict[Place, Capacity]:
    """Measure side by side; raise BenchError where something cannot be measured."""
    with ExitStack() as stack:
        return _listen({stack.enter_context(spawned(work, job)): job for job in jobs}, report)


def _listen(running: dict[Connection, Job], report: Progress) -> dict[Place, Capacity]:
    """Gather what processes say until all have said everything."""
    total = sum(len(job.wanted) for job in running.values())
    found: dict[Place, Capacity] = {}
    parts = {job.device: (0.0, 0.0) for job in running.values()}
    while running:
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            job = running[connection]
            try:
                word, *said = connection.recv()
            except EOFError:
                raise BenchError(f'the process that measures on {job.device} has ended') from None
            if word == 'failed':
                raise BenchError(f'on {job.device}: {said[0]}')
            if word == 'found':
                found[said[0]], parts[job.device] = said[1], (0.0, 0.0)
            if word == 'part':
                parts[job.device] = said[0], said[1]
            if word == 'end':
                del running[connection]
                connection.close()
            report((len(found) + sum(part for part, _ in parts.values())) / total,
                   max((expect(len(job.wanted.keys() - found.keys()), *parts[job.device])
                        for job in running.values()), default=0.0))
    return found


def expect(models: int, part: float, left: float) -> float:
    """Return how long a device will take for models, s, when a part of the first one is done."""
    # Those to come will take as long as the one that is measured.
    return left + (models - 1) * left / (1 - part) if models and part < 1 else 0.0


def work(connection: Any, job: Job) -> None:
    """Measure a job in a process of its own."""
    for (name, model), wanted in job.wanted.items():
        def measure(_: str, name: str = name, model: str = model) -> Capacity:
            server = replace(job.factory.servers[name], device=job.device)
            prepared = prepare({model: job.factory.models[model]}, job.device,
                               server.max_batch, server.engine == 'lockstep')
            return measure_capacity(
                prepared, server, model, never,
                lambda part, left: connection.send(('part', part, left)),
                job.epochs, job.seconds)
        found = obtain(wanted.file, {model: wanted.setting}, job.device, measure,
                       lambda: sleep(LOOK_PERIOD), job.again)
        connection.send(('found', (name, model), found[model]))
    connection.send(('end',))
