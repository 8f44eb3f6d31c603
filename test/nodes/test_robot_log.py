# SPDX-License-Identifier: Apache-2.0
"""The books of one robot: every observation and every chunk is counted exactly once."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.nodes.robot_log import Chunk, KEPT_ANSWERS, Kind, MEMORY, RobotLog

PATIENCE = 2.0
ARM = ModelConfig('tiny', {'front': CameraConfig()}, joints=('a', 'b'), rate=2.0, slo=0.5,
                  capacity=1)
MODELS = {'arm': ARM, 'slow': replace(ARM, slo=1.5),
          'hand': replace(ARM, actions=('x', 'y', 'z'))}


def chunk(stamp: int, number: int, **changes: Any) -> Chunk:
    actions = np.zeros(6, np.float32)
    return replace(Chunk('robot_1', number, 'arm', stamp, 3, ('a', 'b'), actions, 0.1),
                   **changes)


@pytest.fixture
def log() -> RobotLog:
    return RobotLog('robot_1', MODELS, PATIENCE)


def balance(log: RobotLog) -> tuple[int, int, int, int]:
    return log.sent, log.answered, log.unanswered, log.outstanding


def test_an_answer_is_counted_with_its_times(log: RobotLog) -> None:
    log.send(7, now=10.0)
    assert log.receive(chunk(7, 1), now=10.25).kind is Kind.RIGHT
    assert balance(log) == (1, 1, 0, 0)
    assert log.model == 'arm'
    assert list(log.latency_ms) == pytest.approx([250.0])
    assert list(log.overhead_ms) == pytest.approx([150.0])


@pytest.mark.parametrize(('changes', 'word'), [
    ({'robot': 'robot_2'}, "'robot_2'"),
    ({'model': 'leg'}, "'leg'"),
    ({'stamp_ns': 8}, '8'),
    ({'request': 1}, 'request 1 came after request 1'),
    ({'names': ('b', 'a')}, 'b, a'),
    ({'model': 'hand'}, 'x, y, z'),
    ({'horizon': 4}, 'horizon 4'),
    ({'horizon': 0, 'actions': np.zeros(0, np.float32)}, 'horizon 0'),
    ({'actions': np.array([0, 1, 2, 3, 4, np.nan], np.float32)}, 'finite'),
    ({'actions': np.array([0, 1, 2, 3, 4, -np.inf], np.float32)}, 'finite'),
], ids=['robot', 'model', 'stamp', 'request', 'order', 'names', 'horizon', 'empty', 'nan', 'inf'])
def test_a_wrong_chunk_is_named_and_answers_nothing(log: RobotLog, changes: dict[str, Any],
                                                    word: str) -> None:
    log.send(6, now=9.5)
    log.receive(chunk(6, 1), now=9.6)
    log.send(7, now=10.0)
    verdict = log.receive(chunk(7, 2, **changes), now=10.1)
    assert verdict.kind is Kind.WRONG
    assert word in verdict.detail
    assert log.wrong == 1
    assert balance(log) == (2, 1, 0, 1)
    assert log.receive(chunk(7, 2), now=10.2).kind is Kind.RIGHT


def test_a_second_answer_is_a_duplicate_whatever_its_number(log: RobotLog) -> None:
    log.send(7, now=10.0)
    log.receive(chunk(7, 1), now=10.1)
    assert [log.receive(chunk(7, number), now=10.2).kind for number in (1, 2)] == [
        Kind.DUPLICATED] * 2
    assert log.duplicated == 2
    assert balance(log) == (1, 1, 0, 0)


def test_the_deadline_is_that_of_the_model_that_answered(log: RobotLog) -> None:
    for stamp in (1, 2):
        log.send(stamp, now=0.0)
    assert log.receive(chunk(1, 1, model='slow'), now=1.0).kind is Kind.RIGHT
    assert log.receive(chunk(2, 2, model='arm'), now=1.0).kind is Kind.LATE
    assert (log.answered, log.late) == (2, 1)


def test_an_overdue_observation_is_unanswered_until_its_answer_comes(log: RobotLog) -> None:
    for stamp in (1, 2):
        log.send(stamp, now=float(stamp))
    log.expire(now=1.0 + PATIENCE)
    assert balance(log) == (2, 0, 0, 2)
    log.expire(now=1.5 + PATIENCE)
    assert balance(log) == (2, 0, 1, 1)
    assert log.overdue == (1,)
    assert log.receive(chunk(1, 1), now=10.0).kind is Kind.LATE
    assert balance(log) == (2, 1, 0, 1)


def test_what_is_long_past_is_forgotten_but_stays_counted(log: RobotLog) -> None:
    log.send(1, now=0.0)
    log.send(2, now=0.0)
    log.receive(chunk(1, 1), now=0.1)
    log.expire(now=PATIENCE + 1.0)
    log.expire(now=PATIENCE + MEMORY + 1.0)
    assert balance(log) == (2, 1, 1, 0)
    assert log.overdue == ()
    assert log.receive(chunk(2, 2), now=90.0).kind is Kind.WRONG
    assert log.receive(chunk(1, 3), now=90.0).kind is Kind.WRONG
    assert balance(log) == (2, 1, 1, 0)


def test_only_the_newest_latencies_are_kept(log: RobotLog) -> None:
    for number in range(1, KEPT_ANSWERS + 3):
        log.send(number, now=float(number))
        log.receive(chunk(number, number), now=number + number * 1e-6)
    assert log.answered == KEPT_ANSWERS + 2
    assert len(log.latency_ms) == len(log.overhead_ms) == KEPT_ANSWERS
    assert log.latency_ms[0] == pytest.approx(3e-3, abs=1e-6)


@pytest.mark.parametrize('stamp', [7, 6])
def test_a_stamp_that_does_not_grow_is_refused(log: RobotLog, stamp: int) -> None:
    log.send(7, now=0.0)
    with pytest.raises(ValueError, match=r'robot_1.*stamp'):
        log.send(stamp, now=1.0)
    assert balance(log) == (1, 0, 0, 1)


EVENTS = st.lists(st.one_of(
    st.just(('send', 0, 0)),
    st.tuples(st.just('receive'), st.integers(0, 12), st.integers(0, 15)),
    st.just(('expire', 0, 0))), max_size=60)
PAUSES = st.sampled_from([0.0, 0.1, 0.6, 1.9, 2.1, 30.0, 70.0])


@given(events=EVENTS, data=st.data())
def test_every_observation_is_in_one_place_and_every_chunk_is_counted_once(
        events: list[tuple[str, int, int]], data: st.DataObject) -> None:
    log = RobotLog('robot_1', MODELS, PATIENCE)
    now, received, answered = 0.0, 0, set()
    for kind, stamp, request in events:
        now += data.draw(PAUSES)
        before = balance(log)
        if kind == 'send':
            log.send(log.sent + 1, now)
        elif kind == 'expire':
            log.expire(now)
        else:
            received += 1
            verdict = log.receive(chunk(stamp, request), now)
            if verdict.kind in (Kind.RIGHT, Kind.LATE):
                assert stamp not in answered
                answered.add(stamp)
            else:
                assert balance(log) == before
        assert log.sent == log.answered + log.unanswered + log.outstanding
        assert min(balance(log)) >= 0
        assert log.answered == len(answered) == len(log.latency_ms)
        assert log.late <= log.answered
        assert received == log.answered + log.duplicated + log.wrong
