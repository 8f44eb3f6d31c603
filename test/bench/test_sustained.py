# SPDX-License-Identifier: Apache-2.0
"""Capacities measured in short: the right number where answers are known, and a way out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.bench import sustained
from robion_ros.bench.drive import never
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.records import Ending, Record
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.bench.sustained import (
    capacity_file,
    find_capacity,
    guess,
    measure_capacity,
    steps_left,
)
from robion_ros.config import ServerConfig
from robion_ros.engine.capacities import Capacity
from robion_ros.engine.device import open_device
from robion_ros.engine.profile import Load

SLOS = {'m': 0.1}
TRAFFIC = Traffic(2.0, 3, 2.0)


def deaf(part: float, left: float) -> None:
    """Hear nothing."""


@settings(deadline=None, max_examples=30)
@given(limit=st.integers(0, 70), first=st.integers(1, 90), hurried=st.booleans())
def test_the_number_that_is_sustained_is_found(kit: SimpleNamespace, limit: int, first: int,
                                               hurried: bool) -> None:
    # Robots beyond the limit make all late; below, answers take little or most of the time.
    serving = kit.Ideal(lambda robots: 0.2 if robots > limit else 0.01 if hurried else 0.09)
    found = find_capacity(serving.open, SLOS, TRAFFIC, first, deaf)
    # From 67 on, 3 % are more than a robot.
    assert found.robots == limit or (limit > 66 and limit - 2 <= found.robots <= limit)
    assert found.attainment == (1.0 if limit else 0.0)
    assert found.p99 == pytest.approx(0.2 if not limit else 0.01 if hurried else 0.09)


def test_a_model_that_fails_has_no_capacity(kit: SimpleNamespace) -> None:
    serving = kit.Ideal(lambda robots: 0.01)
    serving.run = lambda trips: [Record(trip.arrival, Ending.FAILED) for trip in trips]
    with pytest.raises(BenchError, match='4 of 4 requests of 1 robot failed in the model m'):
        find_capacity(serving.open, SLOS, TRAFFIC, 4, deaf)


def test_one_epoch_decides_while_answers_leave_half_of_the_time(kit: SimpleNamespace) -> None:
    quick, slow = (kit.Ideal(lambda robots, least=least: least if robots <= 16 else 0.2)
                   for least in (0.01, 0.09))
    for serving, epochs in ((quick, 3), (slow, 12)):
        find_capacity(serving.open, SLOS, TRAFFIC, 4, deaf)
        passed = [trips for trips in serving.epochs
                  if len({trip.arrival.robot.name for trip in trips}) in (4, 8, 16)]
        assert len(passed) == epochs


def test_progress_ends_at_the_whole(kit: SimpleNamespace) -> None:
    heard: list[tuple[float, float]] = []
    find_capacity(kit.Ideal(lambda robots: 0.01 if robots <= 23 else 0.2).open, SLOS, TRAFFIC, 4,
                  lambda part, left: heard.append((part, left)))
    assert all(0 < part <= 1 and left >= 0 for part, left in heard)
    assert heard[-1][0] > 0.7


def test_steps_that_are_left_are_halvings() -> None:
    assert steps_left({}, 4) == 4
    assert steps_left({4: {'passes': True}, 8: {'passes': False}}, 6) == 2
    assert steps_left({4: {'passes': False}}, 2) == 2
    assert steps_left({96: {'passes': True}, 97: {'passes': False}}, 97) == 1


def test_search_begins_near_what_full_batches_would_serve(prepared: Prepared) -> None:
    assert guess(prepared, 'a', 2.0) == sustained.FIRST
    load = Load('a', 2)
    known = replace(prepared, times={(load, load): 0.025})
    # 2 requests in 25 ms are 80 in a second, of 40 robots.
    assert guess(known, 'a', 2.0) == 30
    assert guess(known, 'a', 1000.0) == 1


def test_an_engine_is_measured(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline that nothing meets: how many robots one does sustain is the machine's affair."""
    monkeypatch.setitem(prepared.configs, 'a', replace(prepared.configs['a'], slo=0.001, rate=20))
    found = measure_capacity(prepared, ServerConfig(('a', 'b')), 'a', never, deaf, 1, 0.2)
    assert found.robots == 0 and found.attainment < 0.98 and not found.scaled_from


def test_slow_robots_are_measured_faster_and_scaled(prepared: Prepared,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(prepared.configs, 'a', replace(prepared.configs['a'], rate=0.05))
    rates: list[float] = []

    def find(opener: object, slos: object, traffic: Traffic, *_: object) -> Capacity:
        rates.append(traffic.rate)
        assert traffic.seconds >= 4 / traffic.rate
        return Capacity(30, 0.99, 0.1)
    monkeypatch.setattr(sustained, 'find_capacity', find)
    found = measure_capacity(prepared, ServerConfig(('a',)), 'a', never, deaf)
    assert rates == [0.5] and found == Capacity(300, 0.99, 0.1, 0.5)


def test_what_check_raises_ends_the_engine(prepared: Prepared,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[sustained.Engines] = []
    serve = sustained.Engines.serve

    @contextmanager
    def spy(self: sustained.Engines, *how: str) -> Iterator[object]:
        with serve(self, *how) as serving:  # type: ignore[arg-type]
            made.append(serving._engine)  # type: ignore[attr-defined]
            yield serving
    monkeypatch.setattr(sustained.Engines, 'serve', spy)

    def end() -> None:
        raise InterruptedError('shut down')
    with pytest.raises(InterruptedError):
        measure_capacity(prepared, ServerConfig(('a',)), 'a', end, deaf)
    assert not made[0].alive  # type: ignore[attr-defined]


def test_capacities_are_kept_for_a_machine_and_its_programs(monkeypatch: pytest.MonkeyPatch,
                                                            tmp_path: object) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    file = capacity_file(open_device('cpu'))
    assert str(file.folder) == f'{tmp_path}/robion_ros/capacities'
    assert set(file.machine) == {'cpu', 'cores', 'torch', 'code'}
    monkeypatch.setattr(sustained, 'CODE', sustained.CODE[1:])
    assert capacity_file(open_device('cpu')).path != file.path
