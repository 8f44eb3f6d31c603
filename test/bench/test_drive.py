# SPDX-License-Identifier: Apache-2.0
"""An engine that is driven: every request has one record, and latencies count from the plan."""

from collections import Counter
from collections.abc import Iterator, Mapping
from time import monotonic

import numpy as np
import pytest

from robion_ros.bench.arrivals import Arrival, make_robots, Robot, schedule
from robion_ros.bench.drive import EngineServing
from robion_ros.bench.engines import Engines, make_sources
from robion_ros.bench.network import Link, Network, travel, Trip
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.records import Ending
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.core import ActionChunk, Dropped, DropReason, Request, Timings


class Engine:
    """Ends every request in a way that its robot's name says."""

    def __init__(self, on_outcome) -> None:
        self.on_outcome = on_outcome
        self.requests: list[Request] = []
        self.robots: Mapping[str, str] = {}
        self.calls: list[str] = []
        self.alive = True

    def assign(self, epoch: int, robots: Mapping[str, str]) -> None:
        self.robots = robots

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        if request.robot == 'silent':
            return
        if request.robot in {reason.value for reason in DropReason}:
            self.on_outcome(Dropped(request, DropReason(request.robot)))
            return
        for _ in range(2 if request.robot == 'twice' else 1):
            self.on_outcome(ActionChunk(request, np.zeros((1, 1), np.float32),
                                        Timings(0.0, 0.1, 0.2, 0.3), 2, monotonic()))

    def drain(self, timeout: float) -> bool:
        self.calls.append('drain')
        return True

    def resume(self) -> None:
        self.calls.append('resume')

    def stop(self) -> None:
        self.calls.append('stop')


class Source:
    def make(self):
        return None


@pytest.fixture
def served() -> Iterator[tuple[EngineServing, Engine]]:
    serving = EngineServing(Engine, {'m': Source()})  # type: ignore[arg-type, dict-item]
    yield serving, serving._engine  # type: ignore[misc]
    serving.close()


def trip(robot: str, number: int = 1, at: float = 0.0, up: float | None = 0.0,
         down: float | None = 0.0) -> Trip:
    return Trip(Arrival(Robot(robot, 'm', 0.1), number, at, True), up, down)


def test_every_end_has_its_record(served) -> None:
    serving, engine = served
    names = ['ok', 'silent', *(reason.value for reason in DropReason)]
    trips = [*map(trip, names), trip('up', up=None), trip('down', down=None)]
    endings = {record.arrival.robot.name: record.ending for record in serving.run(trips)}
    assert endings == {'ok': Ending.ANSWERED, 'silent': Ending.UNANSWERED, 'up': Ending.LOST_UP,
                       'down': Ending.LOST_DOWN,
                       **{reason.value: Ending(reason.value) for reason in DropReason}}
    assert 'up' not in {request.robot for request in engine.requests}
    assert set(engine.robots) == {trip.arrival.robot.name for trip in trips}
    assert engine.calls == ['drain', 'resume']


def test_latency_counts_from_the_observation_to_the_robot(served) -> None:
    serving, engine = served
    (record,) = serving.run([trip('a', at=0.01, up=0.03, down=5.0)])
    assert record.latency is not None and record.latency >= 5.03
    assert not record.met
    (request,) = engine.requests
    assert request.deadline - request.arrived == pytest.approx(0.1 - 0.03)
    assert record.timings == Timings(0.0, 0.1, 0.2, 0.3) and record.batch == 2
    assert record.lag >= 0


def test_requests_are_submitted_in_the_order_in_which_they_reach_the_server(served) -> None:
    serving, engine = served
    serving.run([trip('a', at=0.0, up=0.05), trip('b', at=0.01, up=0.01), trip('c', at=0.02)])
    assert [request.robot for request in engine.requests] == ['b', 'c', 'a']


def test_an_overtaken_request_is_superseded(served) -> None:
    serving, engine = served
    records = serving.run([trip('a', 1, 0.0, up=0.05), trip('a', 2, 0.01)])
    assert [record.ending for record in records] == [Ending.SUPERSEDED, Ending.ANSWERED]
    assert [request.number for request in engine.requests] == [2]


def test_a_request_that_ends_twice_stops_the_evaluation(served) -> None:
    with pytest.raises(BenchError, match='1 requests had more than one outcome'):
        served[0].run([trip('twice')])


def test_an_engine_that_has_died_stops_the_evaluation(served) -> None:
    serving, engine = served
    engine.alive = False
    with pytest.raises(BenchError, match='ended by a fault'):
        serving.run([trip('a')])


@pytest.mark.parametrize('late', ['serve', 'shed'])
@pytest.mark.parametrize('mode', ['lockstep', 'monolithic', 'two-stream', 'stepwise', 'split'])
def test_a_real_engine_accounts_for_every_request(prepared: Prepared, kit, mode, late) -> None:
    """More than it can serve, over a network that loses: nothing is asserted about times."""
    engines = Engines(prepared, make_sources(prepared, 48, 64, 0), late, kit.OPTIONS)
    traffic = Traffic(rate=20.0, seconds=0.3, lead=0.05)
    network = Network(Link(1.0, 3.0, loss=0.1), Link(1.0, 3.0, loss=0.1))
    with engines.serve(mode, 'earliest_slo_first') as serving:
        for epoch in range(2):
            plan = schedule(make_robots({'a': 0.05, 'b': 0.1}, 20), traffic, epoch)
            trips = travel(plan, network, 0, epoch)
            records = serving.run(trips)
            assert Counter((record.arrival.robot.name, record.arrival.number)
                           for record in records) == Counter(
                (arrival.robot.name, arrival.number) for arrival in plan)
            assert not {Ending.UNANSWERED, Ending.FAILED, Ending.CANCELLED} & {
                record.ending for record in records}
            lost = sum(trip.up is None for trip in trips)
            assert lost == sum(record.ending is Ending.LOST_UP for record in records)
