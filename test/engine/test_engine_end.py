# SPDX-License-Identifier: Apache-2.0
"""Draining and stopping at every moment: nothing is lost, doubled or waited for in vain."""

from math import inf
from pathlib import Path
import threading
from threading import Event
from time import monotonic, sleep

import pytest

from robion_ros.core import ActionChunk, DropReason
from robion_ros.engine.pipelines import PIPELINES

FLEET = {name: 'm' for name in 'abcdefgh'}
KINDS = sorted(PIPELINES)


@pytest.mark.parametrize('kind', KINDS)
def test_drain_answers_what_was_accepted(kit, start, kind: str) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, engine=kind)
    assert engine.drain(0.0)
    engine.resume()
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    for number, robot in enumerate('bcde', 2):
        engine.submit(kit.request(number, robot))
    draining = kit.begin(lambda: (engine.drain(kit.TIMEOUT), outcomes.ends()))
    last = 5
    while (last, DropReason.CANCELLED) not in outcomes.ends():  # until the drain has begun
        last += 1
        engine.submit(kit.request(last, 'f'))
    script.free()
    drained, ends = draining.result(kit.TIMEOUT)
    assert drained
    assert [number for number, end in ends if end is None][:5] == [1, 2, 3, 4, 5]
    assert sorted(number for number, _ in ends) == list(range(1, last + 1))


def test_drain_gives_up_and_the_engine_goes_on(kit, start) -> None:
    script = kit.Script('adit')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET)
    engine.submit(kit.request(1, 'a'))
    script.wait('adit', 1)
    assert not engine.drain(0.01)
    engine.submit(kit.request(2, 'a'))
    assert outcomes.ends() == [(2, DropReason.CANCELLED)]
    assert 'drains' in outcomes.of(2).detail
    engine.resume()
    engine.submit(kit.request(3, 'a'))
    script.free()
    outcomes.wait(3)
    assert engine.drain(kit.TIMEOUT)
    assert outcomes.ends()[1:] == [(1, None), (3, None)]


@pytest.mark.parametrize('kind', KINDS)
def test_requests_of_robots_that_leave_are_answered_first(kit, start, kind: str) -> None:
    """Their next server may answer a newer observation soon."""
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, engine=kind, max_batch=1)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    for number, robot in enumerate('bcde', 2):
        engine.submit(kit.request(number, robot))
    engine.assign(2, {robot: 'm' for robot in 'abcd'})
    script.free()
    assert engine.drain(kit.TIMEOUT)
    assert [number for number, end in outcomes.ends() if end is None] == [1, 5, 2, 3, 4]


def finish(kit, engine, script) -> None:
    script.free()


def supersede(kit, engine, script) -> None:
    kit.begin(engine.submit, kit.request(3, 'b'))


def cancel(kit, engine, script) -> None:
    kit.begin(engine.cancel, 'b', 'the instruction changed')


@pytest.mark.parametrize(('act', 'number', 'reason'), [
    (finish, 1, None), (finish, 2, DropReason.SHED), (supersede, 2, DropReason.SUPERSEDED),
    (cancel, 2, DropReason.CANCELLED),
], ids=['chunk', 'shed', 'superseded', 'cancelled'])
def test_drain_waits_until_every_outcome_is_called_out(kit, start, act, number: int,
                                                       reason) -> None:
    script, calling, go = kit.Script('vlm'), Event(), Event()

    def hook(outcome) -> None:
        if outcome.request.number == number:
            calling.set()
            assert go.wait(kit.TIMEOUT)
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, kit.Outcomes(hook), late='shed')
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b', deadline=monotonic() if act is finish else inf))
    act(kit, engine, script)
    assert calling.wait(kit.TIMEOUT)
    script.free()
    assert not engine.drain(kit.GRACE)
    go.set()
    assert engine.drain(kit.TIMEOUT)
    assert (number, reason) in outcomes.ends()


@pytest.mark.parametrize('late', [1, 3], ids=['alone', 'several'])
def test_drain_waits_for_what_is_shed_by_an_idle_engine(kit, start, late: int) -> None:
    calling, go = Event(), Event()

    def hook(outcome) -> None:
        calling.set()
        assert go.wait(kit.TIMEOUT)
    engine, outcomes = start({'m': kit.Fake()}, FLEET, kit.Outcomes(hook), late='shed')
    for number, robot in enumerate('abc'[:late], 1):
        engine.submit(kit.request(number, robot, deadline=monotonic() - 1.0))
    assert calling.wait(kit.TIMEOUT)
    assert not engine.drain(kit.GRACE)
    go.set()
    assert engine.drain(kit.TIMEOUT)
    assert sorted(outcomes.ends()) == [(n, DropReason.SHED) for n in range(1, late + 1)]


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('stage', ['preprocess', 'vlm', 'adit', 'postprocess', None])
def test_stop_at_every_moment(kit, start, kind: str, stage: str | None) -> None:
    script = kit.Script(stage)
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, engine=kind, max_batch=1)
    submitting = [kit.begin(engine.submit, kit.request(1, 'a'))]
    if stage:
        script.wait(stage, 1)
    submitting += [kit.begin(engine.submit, kit.request(number, robot))
                   for number, robot in enumerate('bcd', 2)]
    if stage != 'preprocess':
        for each in submitting:
            each.result(kit.TIMEOUT)
    stopping = kit.begin(engine.stop)
    if stage == 'preprocess':
        stopping.result(kit.TIMEOUT)  # It waits for no submitter.
    elif stage:
        assert kit.waits(stopping)  # What runs is finished first.
    script.free()
    stopping.result(kit.TIMEOUT)
    for each in submitting:
        each.result(kit.TIMEOUT)
    ends = dict(outcomes.ends())
    assert len(outcomes.all) == len(ends) == 4
    assert set(ends.values()) <= {None, DropReason.CANCELLED}
    if stage:
        assert (ends[1] is None) is (stage != 'preprocess')
        assert ends[4] is DropReason.CANCELLED
    assert not engine.alive
    stages = {'engine', 'vlm_0', 'adit_0', 'monolithic_0'}
    assert not stages & {thread.name for thread in threading.enumerate()}


def test_stopped_engine_stays_so(kit, start) -> None:
    engine, outcomes = start({'m': kit.Fake()}, FLEET)
    engine.stop()
    engine.stop()
    engine.resume()
    engine.submit(kit.request(1, 'a'))
    assert outcomes.ends() == [(1, DropReason.CANCELLED)]
    assert 'was stopped' in outcomes.of(1).detail
    assert engine.drain(0.0) and not engine.alive
    assert engine.stats().waiting == 0


def test_stopping_engine_cannot_be_resumed(kit, start) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b'))
    stopping = kit.begin(engine.stop)
    assert outcomes.of(2).reason is DropReason.CANCELLED
    engine.resume()
    engine.submit(kit.request(3, 'c'))
    assert outcomes.ends() == [(2, DropReason.CANCELLED), (3, DropReason.CANCELLED)]
    script.free()
    stopping.result(kit.TIMEOUT)
    assert outcomes.ends()[2:] == [(1, None)]


def test_stop_ends_a_drain(kit, start) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b'))
    draining = kit.begin(engine.drain, 10 * kit.TIMEOUT)
    stopping = kit.begin(engine.stop)
    assert outcomes.of(2).reason is DropReason.CANCELLED
    assert kit.waits(draining)
    script.free()
    assert draining.result(kit.TIMEOUT)
    stopping.result(kit.TIMEOUT)
    assert outcomes.ends() == [(2, DropReason.CANCELLED), (1, None)]


def test_listener_may_call_the_engine(kit, start) -> None:
    engines = []

    def hook(outcome) -> None:
        if isinstance(outcome, ActionChunk) and outcome.request.number < 5:
            engines[0].cancel('z', 'no reason')
            engines[0].assign(outcome.request.number, FLEET)
            engines[0].submit(kit.request(outcome.request.number + 1, 'a'))
            assert engines[0].stats().epoch == outcome.request.number
    engine, outcomes = start({'m': kit.Fake()}, FLEET, kit.Outcomes(hook))
    engines.append(engine)
    engine.submit(kit.request(1, 'a'))
    outcomes.wait(5)
    assert sorted(outcomes.ends()) == [(number, None) for number in range(1, 6)]


@pytest.mark.skipif(not Path('/proc/self/task').exists(), reason='needs /proc')
def test_idle_engine_sleeps(kit, start) -> None:
    engine, outcomes = start({'m': kit.Fake()}, FLEET)
    engine.submit(kit.request(1, 'a'))
    outcomes.wait(1)

    def wake_ups() -> list[str]:
        ids = [thread.native_id for thread in threading.enumerate()
               if thread.name in ('engine', 'vlm_0', 'adit_0')]
        return [line for ident in ids for line in Path(f'/proc/self/task/{ident}/status').open()
                if 'ctxt_switches' in line]
    end = monotonic() + kit.TIMEOUT
    before: list[str] = []
    while before != (before := wake_ups()):
        assert monotonic() < end, 'the engine wakes up although there is nothing to do'
        sleep(0.2)
    assert len(before) == 6
