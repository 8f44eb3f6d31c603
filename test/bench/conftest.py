# SPDX-License-Identifier: Apache-2.0
"""Prepared models on the CPU, and servings whose answers are known."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from robion_ros.bench.arrivals import Arrival, Robot
from robion_ros.bench.modes import ModeOptions
from robion_ros.bench.network import Trip
from robion_ros.bench.prepared import make_configs, prepare, Prepared
from robion_ros.bench.records import Ending, Record

OPTIONS = ModeOptions(second_device='cpu')


class Ideal:
    """Answers every request after a time that depends on how many robots there are."""

    def __init__(self, latency: Callable[[int], float]) -> None:
        self.latency = latency
        self.epochs: list[Sequence[Trip]] = []

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        self.epochs.append(trips)
        robots = len({trip.arrival.robot.name for trip in trips})
        records = []
        for trip in reversed(trips):
            if trip.up is None:
                records.append(Record(trip.arrival, Ending.LOST_UP))
            else:
                records.append(Record(trip.arrival, Ending.ANSWERED, self.latency(robots)))
        return records

    @contextmanager
    def open(self) -> Iterator['Ideal']:
        yield self


def make_record(latency: float | None, ending: Ending = Ending.ANSWERED, model: str = 'm',
                slo: float = 0.1, number: int = 1) -> Record:
    return Record(Arrival(Robot('a', model, slo), number, 0.0, True), ending, latency)


@pytest.fixture(scope='session')
def kit() -> SimpleNamespace:
    """Return the parts above, which test modules cannot import."""
    return SimpleNamespace(Ideal=Ideal, make_record=make_record, OPTIONS=OPTIONS)


@pytest.fixture(scope='session', autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as a server does: more threads than free cores slow small tensors down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def prepare_models(**architectures: str) -> Prepared:
    configs = make_configs(architectures, dict.fromkeys(architectures, 1.0), 2.0, 2, 3, 0)
    return prepare(configs, 'cpu', 2)


@pytest.fixture(scope='session')
def prepared() -> Prepared:
    """Return two variants of one architecture."""
    return prepare_models(a='tiny', b='tiny')


@pytest.fixture(scope='session')
def prepared_pi0() -> Prepared:
    """Return the kinds of pi0."""
    return prepare_models(a='pi0_small', b='pi05_small')
