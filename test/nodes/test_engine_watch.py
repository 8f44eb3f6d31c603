# SPDX-License-Identifier: Apache-2.0
"""An engine that hangs is told from one that takes long, and from a process that was stopped."""

from types import SimpleNamespace

import pytest

from robion_ros.engine.pace import Pace
from robion_ros.nodes import engine_watch as module
from robion_ros.nodes.engine_watch import EngineWatch, GAP, MANY, PATIENCE


class Bench:
    """A watch of an engine whose lockstep began at some time, looked at by a clock of ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, 'monotonic', lambda: self.now)
        self.now = 0.0
        self.engine = SimpleNamespace(alive=True, pace=Pace(longest=0.1))
        self.watch = EngineWatch(self.engine, 5.0)

    def look_for(self, seconds: float, every: float = 0.5, loading: bool = False) -> str:
        """Look again and again; return what was said at last."""
        said = ''
        for _ in range(round(seconds / every)):
            self.now += every
            said = self.watch.look(loading)
        return said


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_lockstep_that_does_not_end_is_a_hang_after_the_limit(bench: Bench) -> None:
    bench.engine.pace.since = 0.1
    assert not bench.look_for(5.0)
    assert bench.look_for(1.0) == ('the engine hangs, and its device with it: a lockstep has not '
                                   'ended in 6 s')
    assert bench.watch.left == 0.0


def test_locksteps_that_end_and_an_engine_at_rest_are_none(bench: Bench) -> None:
    for since in (0.1, 4.0, 8.0, None, 12.0):
        bench.engine.pace.since = since
        assert not bench.look_for(4.0)
    bench.engine.pace.since = None
    assert not bench.look_for(60.0)


def test_a_model_that_takes_long_may_take_long(bench: Bench) -> None:
    bench.engine.pace.count(3.0, tried=False)
    assert bench.watch.limit == 5.0
    bench.engine.pace.count(2.0, tried=True)
    bench.engine.pace.since = 0.1
    assert not bench.look_for(2.0 * MANY)
    assert bench.look_for(1.0)


def test_what_is_loaded_beside_it_makes_it_patient(bench: Bench) -> None:
    bench.engine.pace.since = 0.1
    assert not bench.look_for(PATIENCE * 4.0, loading=True)
    assert not bench.look_for(0.5), 'nor is it hasty when that has ended'
    assert bench.look_for(2.0)


@pytest.mark.parametrize('gap', [10.0, 1e6])
def test_time_in_which_the_process_was_stopped_does_not_count(bench: Bench, gap: float) -> None:
    bench.engine.pace.since = 0.1
    assert not bench.look_for(1.0)
    bench.now += gap
    assert not bench.watch.look(False)
    assert bench.watch.left == 5.0 - 0.5 - GAP


def test_no_limit_is_none(bench: Bench) -> None:
    watch = EngineWatch(bench.engine, 0.0)
    bench.engine.pace.since = 0.1
    bench.now = 1e6
    assert not watch.look(False)
    bench.now += 1e6
    assert not watch.look(False)


def test_an_engine_whose_thread_has_ended_is_said_at_once(bench: Bench) -> None:
    bench.engine.alive = False
    assert bench.watch.look(False) == 'the engine has stopped by a fault'
    bench.engine.pace.since = 0.1
    assert bench.watch.look(True) == 'the engine has stopped by a fault'
