# SPDX-License-Identifier: Apache-2.0
"""Many threads at once: every request ends exactly once, whatever happens around it."""

from collections.abc import Iterator
from itertools import count
from math import inf
from random import Random
import sys
from threading import Event
from time import monotonic

import numpy as np
import pytest

from robion_ros.core import ActionChunk, DropReason, Request

FLEET = {f'{model}{index}': model for model in 'mn' for index in range(6)}


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    """Let threads interrupt each other often, so that they meet at every line."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Crowd:
    """Threads that submit, assign, cancel and drain at random until they are done."""

    def __init__(self, kit, engine, seed: int, requests: int) -> None:
        self.kit, self.engine, self.random = kit, engine, Random(seed)
        self.requests = requests
        self.submitted: list[Request] = []
        self.over = Event()
        robots = sorted(FLEET)
        self.submitters = [kit.begin(self.submit, Random(seed + index), robots[index::3])
                           for index in range(3)]
        self.others = [kit.begin(call) for call in (self.assign, self.cancel, self.drain)]

    def submit(self, random: Random, robots: list[str]) -> None:
        for number in range(1, self.requests + 1):
            robot = random.choice(robots)
            model = FLEET[robot] if random.random() < 0.9 else random.choice('mn')
            deadline = random.choice([inf, monotonic() + random.uniform(-0.001, 0.01)])
            self.submitted.append(self.kit.request(number, robot, model, deadline))
            self.engine.submit(self.submitted[-1])
            if random.random() < 0.3:
                self.over.wait(0.001)

    def assign(self) -> None:
        for epoch in count(2):
            if self.over.wait(0.002):
                return
            self.engine.assign(epoch, dict(self.random.sample(sorted(FLEET.items()), 9)))

    def cancel(self) -> None:
        while not self.over.wait(0.001):
            self.engine.cancel(Random(len(self.submitted)).choice(sorted(FLEET)), 'at random')

    def drain(self) -> None:
        while not self.over.wait(0.01):
            self.engine.drain(0.002)
            self.engine.resume()

    def join(self) -> None:
        for each in self.submitters:
            each.result(self.kit.TIMEOUT)
        self.over.set()
        for each in self.others:
            each.result(self.kit.TIMEOUT)


def trouble(stage: str, numbers: tuple[int, ...]) -> None:
    """Fail now and then, in each of the stages."""
    at = ('preprocess', 'vlm', 'adit', 'postprocess').index(stage)
    if any(number % 40 == 10 + at for number in numbers):
        raise RuntimeError(f'{stage} of {numbers} fails')


def check(kit, outcomes, submitted: list[Request]) -> None:
    """Raise AssertionError unless every request ended once and every chunk is its own."""
    assert outcomes.count() == {(request.robot, request.number): 1 for request in submitted}
    models = {'m': kit.Fake(), 'n': kit.Fake(gain=5.0)}
    last: dict[tuple[str, str], int] = {}
    for outcome in outcomes.all:
        request = outcome.request
        if isinstance(outcome, ActionChunk):
            np.testing.assert_allclose(outcome.actions, models[request.model].expected(request),
                                       rtol=1e-4, atol=1e-4)
            assert request.number > last.get((request.robot, request.model), 0)
            last[request.robot, request.model] = request.number
        elif outcome.reason is DropReason.FAILED:
            assert ' fails' in outcome.detail
        elif outcome.reason is DropReason.SHED:
            assert request.deadline < inf


SETTINGS = [('lockstep', 'serve', 'earliest_slo_first', 2),
            ('lockstep', 'shed', 'round_robin', 4),
            ('lockstep', 'yield', 'earliest_slo_first', 4),
            ('monolithic', 'shed', 'largest_queue_first', 8)]


@pytest.mark.parametrize(('kind', 'late', 'policy', 'max_batch'), SETTINGS)
@pytest.mark.parametrize('seed', [1, 2])
def test_every_request_ends_once(kit, start, kind: str, late: str, policy: str, max_batch: int,
                                 seed: int) -> None:
    engine, outcomes = start({'m': kit.Fake(trouble), 'n': kit.Fake(trouble, gain=5.0)}, FLEET,
                             engine=kind, late=late, policy=policy, max_batch=max_batch)
    crowd = Crowd(kit, engine, seed, 150)
    crowd.join()
    assert engine.drain(kit.TIMEOUT) and engine.alive
    check(kit, outcomes, crowd.submitted)
    reasons = {end for _, end in outcomes.ends()}
    assert {None, DropReason.CANCELLED, DropReason.FAILED} <= reasons
    assert (DropReason.SHED in reasons) is (late == 'shed')


@pytest.mark.parametrize(('kind', 'late', 'policy', 'max_batch'), SETTINGS)
@pytest.mark.parametrize('seed', [1, 2, 3])
def test_stop_among_a_crowd_loses_nothing(kit, start, kind: str, late: str, policy: str,
                                          max_batch: int, seed: int) -> None:
    engine, outcomes = start({'m': kit.Fake(trouble), 'n': kit.Fake(trouble, gain=5.0)}, FLEET,
                             engine=kind, late=late, policy=policy, max_batch=max_batch)
    crowd = Crowd(kit, engine, seed, 60)
    outcomes.wait(Random(seed).randint(0, 60))
    kit.begin(engine.stop).result(kit.TIMEOUT)
    crowd.join()
    assert not engine.alive and engine.stats().waiting == 0
    check(kit, outcomes, crowd.submitted)
