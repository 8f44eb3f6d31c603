# SPDX-License-Identifier: Apache-2.0
"""Requests go in and chunks come out, in the right order and from the right model."""

from math import inf
from threading import Barrier
from time import monotonic

import numpy as np
import pytest

from robion_ros.core import ActionChunk, Dropped, DropReason
from robion_ros.engine.pipelines import PIPELINES
from robion_ros.engine.stats import EngineStats

FLEET = {name: 'm' for name in 'abcdefgh'}
KINDS = sorted(PIPELINES)


@pytest.mark.parametrize('kind', KINDS)
def test_every_request_gets_its_chunk(kit, start, kind: str) -> None:
    engine, outcomes = start({'m': kit.Fake(), 'n': kit.Fake(gain=5.0)},
                             {'a': 'm', 'b': 'm', 'c': 'n'}, engine=kind)
    requests = [kit.request(number, 'abc'[number % 3], 'mmn'[number % 3])
                for number in range(1, 7)]
    for request in requests[:3]:
        engine.submit(request)
    outcomes.wait(3)
    for request in requests[3:]:
        engine.submit(request)
    outcomes.wait(6)
    for request in requests:
        chunk = outcomes.of(request.number)
        assert isinstance(chunk, ActionChunk) and chunk.request is request
        model = kit.Fake(gain=5.0 if request.model == 'n' else 1.0)
        np.testing.assert_allclose(chunk.actions, model.expected(request), rtol=1e-5)
        assert chunk.batch in (1, 2)
        times = chunk.timings
        assert times.queue >= 0 and times.vlm > 0 and times.adit > 0
        assert times.engine >= times.queue + times.vlm + times.adit
        assert chunk.finished <= monotonic()


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('max_batch', [2, 4])
def test_chunk_depends_on_its_request_only(kit, start, tiny, kind: str, max_batch: int) -> None:
    alone, expected = start({'m': tiny}, FLEET, engine='monolithic', max_batch=1)
    engine, outcomes = start({'m': tiny}, FLEET, engine=kind, max_batch=max_batch)
    for number, robot in enumerate('abcd', 1):
        alone.submit(kit.request(number, robot))
    for number, robot in reversed(list(enumerate('abcd', 1))):
        engine.submit(kit.request(number, robot))
    expected.wait(4)
    outcomes.wait(4)
    for number in range(1, 5):
        np.testing.assert_allclose(outcomes.of(number).actions, expected.of(number).actions,
                                   atol=1e-5)


def test_vlm_runs_beside_the_adit_of_the_batch_before(kit, start) -> None:
    script = kit.Script('vlm', 'adit')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, max_batch=1)
    for number, robot in enumerate('abcd', 1):
        engine.submit(kit.request(number, robot))
    script.wait('vlm', 1)
    script.let('vlm', 1)
    script.wait('vlm', 2)
    script.wait('adit', 1)  # Neither has been let go: both run now.

    script.let('vlm', 2)
    script.wait_end('vlm', 2)
    assert not script.starts('vlm', 3) and not script.starts('adit', 2)
    script.let('adit', 1)
    script.wait('vlm', 3)
    script.wait('adit', 2)

    script.let('adit', 2)
    assert isinstance(outcomes.of(2), ActionChunk)  # It does not wait for the VLM beside it.
    assert not script.starts('vlm', 4) and not script.starts('adit', 3)
    script.free()
    outcomes.wait(4)
    assert [number for number, _ in outcomes.ends()] == [1, 2, 3, 4]


def test_monolithic_never_overlaps(kit, start) -> None:
    script = kit.Script('adit')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, max_batch=1, engine='monolithic')
    for number, robot in enumerate('abc', 1):
        engine.submit(kit.request(number, robot))
    script.wait('adit', 1)
    assert not script.starts('vlm', 2)
    script.free()
    outcomes.wait(3)
    stages = [event[1:] for event in script.log if event[1] in ('vlm', 'adit')]
    assert stages[::2] == stages[1::2]  # Each starts and ends before the next starts.


def test_preprocessing_runs_in_the_submitters_thread_beside_the_stages(kit, start) -> None:
    meet = Barrier(2, timeout=kit.TIMEOUT)

    def hook(stage: str, numbers: tuple[int, ...]) -> None:
        if (stage, numbers) in (('vlm', (1,)), ('preprocess', (2,))):
            meet.wait()
    engine, outcomes = start({'m': kit.Fake(hook)}, FLEET)
    engine.submit(kit.request(1, 'a'))
    engine.submit(kit.request(2, 'b'))
    outcomes.wait(2)
    assert sorted(outcomes.ends()) == [(1, None), (2, None)]


@pytest.mark.parametrize(('max_batch', 'batches'), [
    (1, [(1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,)]),
    (2, [(1,), (2, 3), (4, 5), (6, 7), (8,)]),
    (4, [(1,), (2, 3, 4, 5), (6, 7), (8,)]), (8, [(1,), (2, 3, 4, 5), (6, 7), (8,)]),
])
def test_what_waits_runs_in_powers_of_two(kit, start, max_batch: int, batches) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, max_batch=max_batch)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    for number, robot in enumerate('bcdefgh', 2):
        engine.submit(kit.request(number, robot))
    script.free()
    assert {outcome.batch for outcome in outcomes.wait(8)} == {len(batch) for batch in batches}
    assert script.batches() == script.batches('adit') == batches


@pytest.mark.parametrize(('policy', 'order'), [
    ('earliest_slo_first', [(1,), (4,), (2,), (3,)]), ('round_robin', [(1,), (4,), (2,), (3,)]),
    ('largest_queue_first', [(1,), (2,), (4,), (3,)]),
])
def test_policy_chooses_the_next_batch(kit, start, policy: str, order) -> None:
    script = kit.Script('vlm')
    models = {'m': kit.Fake(script), 'n': kit.Fake(script)}
    engine, outcomes = start(models, {'a': 'm', 'b': 'm', 'c': 'n'}, policy=policy, max_batch=1)
    engine.submit(kit.request(1, 'a', 'm', 100.0))
    script.wait('vlm', 1)
    for number, robot, model, deadline in ((2, 'a', 'm', 200.0), (3, 'b', 'm', 300.0),
                                           (4, 'c', 'n', 150.0)):
        engine.submit(kit.request(number, robot, model, deadline))
    script.free()
    outcomes.wait(4)
    assert script.batches() == order


def test_newest_request_of_a_robot_wins_in_place(kit, start) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, max_batch=1)
    engine.submit(kit.request(1, 'h'))
    script.wait('vlm', 1)
    for number, robot in ((2, 'a'), (3, 'b'), (4, 'a'), (5, 'a'), (6, 'h')):
        engine.submit(kit.request(number, robot))
    assert outcomes.ends() == [(2, DropReason.SUPERSEDED), (4, DropReason.SUPERSEDED)]
    assert engine.stats().waiting == 3
    script.free()
    outcomes.wait(6)
    assert script.batches() == [(1,), (5,), (3,), (6,)]  # What runs is not replaced.
    assert max(outcomes.count().values()) == 1


@pytest.mark.parametrize(('robot', 'model', 'named'), [('z', 'm', 'm'), ('a', 'n', 'n')],
                         ids=['stranger', 'other_model'])
def test_robot_submits_for_its_model_only(kit, start, robot: str, model: str,
                                          named: str) -> None:
    engine, outcomes = start({'m': kit.Fake(), 'n': kit.Fake()}, FLEET)
    engine.submit(kit.request(1, robot, model))
    assert outcomes.ends() == [(1, DropReason.CANCELLED)]
    assert f'not served here with model {named}' in outcomes.of(1).detail


def test_assignment_lets_accepted_requests_end_where_they_began(kit, start) -> None:
    script = kit.Script('vlm')
    models = {'m': kit.Fake(script), 'n': kit.Fake(script, gain=7.0)}
    engine, outcomes = start(models, FLEET, max_batch=1)
    requests = [kit.request(number, robot) for number, robot in enumerate('abc', 1)]
    for request in requests:
        engine.submit(request)
    script.wait('vlm', 1)
    engine.assign(2, {'a': 'n', 'b': 'n'})
    assert engine.stats().epoch == 2
    requests.append(kit.request(4, 'b', 'n'))
    for request in (requests[3], kit.request(5, 'b', 'm'), kit.request(6, 'c', 'm')):
        engine.submit(request)
    assert outcomes.ends() == [(5, DropReason.CANCELLED), (6, DropReason.CANCELLED)]
    script.free()
    outcomes.wait(6)
    for request in requests:  # Those of 'm' by 'm', although it serves nobody any more.
        np.testing.assert_allclose(outcomes.of(request.number).actions,
                                   models[request.model].expected(request), rtol=1e-5)


def test_assignment_counts_when_preprocessing_is_done(kit, start) -> None:
    script = kit.Script('preprocess')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET)
    submitting = kit.begin(engine.submit, kit.request(1, 'a'))
    script.wait('preprocess', 1)
    engine.assign(2, {'b': 'm'})
    script.free()
    submitting.result(kit.TIMEOUT)
    assert outcomes.ends() == [(1, DropReason.CANCELLED)]


def test_assignment_is_a_copy(kit, start) -> None:
    robots = {'a': 'm'}
    engine, outcomes = start({'m': kit.Fake()}, robots)
    robots.clear()
    engine.submit(kit.request(1, 'a'))
    assert isinstance(outcomes.of(1), ActionChunk)


def test_cancel_withdraws_what_has_not_started(kit, start) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, max_batch=1)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'a'))
    engine.submit(kit.request(3, 'b'))
    engine.cancel('a', 'the instruction changed')
    engine.cancel('nobody', 'the instruction changed')
    assert outcomes.ends() == [(2, DropReason.CANCELLED)]
    assert outcomes.of(2).detail == 'the instruction changed'
    script.free()
    outcomes.wait(3)
    assert outcomes.ends()[1:] == [(1, None), (3, None)]


@pytest.mark.parametrize(('late', 'end'), [
    ('yield', None), ('serve', None), ('shed', DropReason.SHED)])
def test_late_request_is_served_or_shed(kit, start, late: str, end) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, late=late)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b', deadline=monotonic()))
    engine.submit(kit.request(3, 'c', deadline=inf))
    script.free()
    outcomes.wait(3)
    assert sorted(outcomes.ends()) == [(1, None), (2, end), (3, None)]
    if end is None:
        assert not outcomes.of(2).deadline_met and outcomes.of(3).deadline_met


@pytest.mark.parametrize(('late', 'order'), [
    ('yield', [(1,), (3,), (4,), (2,)]), ('serve', [(1,), (2,), (3,), (4,)])])
def test_late_request_gives_way_to_those_that_can_be_met(kit, start, late: str, order) -> None:
    script = kit.Script('vlm')
    models = {'m': kit.Fake(script), 'n': kit.Fake(script)}
    engine, outcomes = start(models, {'a': 'm', 'b': 'm', 'c': 'm', 'd': 'n'}, late=late,
                             max_batch=1)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b', deadline=monotonic()))
    engine.submit(kit.request(3, 'c', deadline=monotonic() + 1000))
    engine.submit(kit.request(4, 'd', 'n', deadline=monotonic() + 2000))
    script.free()
    outcomes.wait(4)
    assert script.batches() == order
    assert not outcomes.of(2).deadline_met


def test_request_whose_time_is_too_short_is_shed(kit, start) -> None:
    engine, outcomes = start({'m': kit.Fake()}, FLEET, late='shed')
    engine.submit(kit.request(1, 'a', deadline=monotonic() - 1.0))
    assert isinstance(outcomes.of(1), Dropped) and outcomes.of(1).reason is DropReason.SHED
    engine.submit(kit.request(2, 'a', deadline=monotonic() + kit.TIMEOUT))
    assert isinstance(outcomes.of(2), ActionChunk)


@pytest.mark.parametrize(('kind', 'locksteps'), [('lockstep', 4), ('monolithic', 3)])
def test_stats_count_locksteps(kit, start, kind: str, locksteps: int) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, engine=kind, max_batch=1)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b'))
    engine.submit(kit.request(3, 'c'))
    assert engine.stats() == EngineStats(2, 0, 0.0, 1)
    script.free()
    outcomes.wait(3)
    kit.begin(engine.stop).result(kit.TIMEOUT)
    stats = engine.stats()
    assert (stats.waiting, stats.locksteps) == (0, locksteps) and stats.lockstep_time > 0
