# SPDX-License-Identifier: Apache-2.0
"""The order of things in the stepwise pipeline: who enters when, and that nobody gets lost."""

from collections.abc import Callable
from threading import Condition, Event, Thread

import numpy as np
import pytest
import torch

from robion_ros.bench.slots import Slots
from robion_ros.bench.stepwise import Stepwise
from robion_ros.core import ActionChunk, Dropped, DropReason, Observation, Outcome, Request
from robion_ros.engine.batch import Batch, make_ticket
from robion_ros.engine.device import open_device
from robion_ros.models.protocol import ModelSpec

TIMEOUT = 20.0
GRACE = 0.1
STEPS = 3


class Counting:
    """A model that adds one to its noise, zeros, in every step, and asks before each."""

    spec = ModelSpec('counting', 1, 1, 2, 1, 0.05)
    denoising_steps = STEPS

    def __init__(self, before_step: Callable[[int], None] = lambda rows: None) -> None:
        self.before_step = before_step

    def preprocess(self, observation: Observation):
        return {'state': torch.from_numpy(observation.state)}

    def vlm(self, inputs):
        return {'state': inputs['state']}

    def adit_begin(self, context):
        return context

    def adit_step(self, begun, actions, steps):
        self.before_step(len(actions))
        assert torch.equal(actions[:, 0, 0], steps.float()), 'a row is at the step of another'
        return actions + 1

    def noise(self, seeds):
        return torch.zeros(len(seeds), 2, 1)

    def postprocess(self, actions, observation):
        return actions.numpy() + observation.state


class Heard:
    def __init__(self) -> None:
        self.all: list[Outcome] = []
        self._changed = Condition()

    def __call__(self, outcome: Outcome) -> None:
        with self._changed:
            self.all.append(outcome)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Outcome]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, TIMEOUT), self.all
            return list(self.all)


def batch_of(model: Counting, *numbers: int, name: str = 'm') -> Batch:
    def request(number: int) -> Request:
        picture = np.zeros((2, 2, 3), np.uint8)
        return Request(f'r{number}', number, name, Observation(
            (picture,), np.array([100 * number], np.float32), 'go', 0), 0.0, 0.0)
    return Batch(name, tuple(make_ticket(model, request(number), 0.0) for number in numbers), 0.0)


def slots_of(model: Counting, size: int) -> Slots:
    quiet = Counting()
    slots = Slots(quiet, {'state': torch.zeros(1, 1)}, torch.zeros(2, 1), size)
    slots._model = model
    return slots


@pytest.fixture
def make():
    """Make pipelines and close them after the test."""
    made = []

    def make(size: int = 4, room: int = 4, **models: Counting) -> Stepwise:
        made.append(Stepwise(models, {name: slots_of(model, size)
                                      for name, model in models.items()}, open_device('cpu'),
                             room))
        return made[-1]
    yield make
    for pipeline in made:
        pipeline.close()


def test_a_row_enters_while_another_is_on_its_way(make) -> None:
    companies: list[int] = []
    begun, go = Event(), Event()

    def before_step(rows: int) -> None:
        companies.append(rows)
        begun.set()
        assert go.wait(TIMEOUT)
    model, heard = Counting(before_step), Heard()
    pipeline = make(m=model)
    assert pipeline.tick(batch_of(model, 1), None, heard) is None
    assert begun.wait(TIMEOUT)
    pipeline.tick(batch_of(model, 2, 3), None, heard)
    go.set()
    chunks = heard.wait(3)
    assert companies == [1, 3, 3, 2]
    assert {chunk.request.number: chunk.batch for chunk in chunks} == {1: 1, 2: 2, 3: 2}
    assert chunks[0].request.number == 1
    for chunk in chunks:
        assert isinstance(chunk, ActionChunk)
        assert (chunk.actions == STEPS + 100 * chunk.request.number).all()


def test_a_full_buffer_holds_the_vlm_stage_back(make) -> None:
    go, entered = Event(), Event()

    def before_step(rows: int) -> None:
        entered.set()
        assert go.wait(TIMEOUT)
    model, heard, done = Counting(before_step), Heard(), Event()
    pipeline = make(1, 1, m=model)
    pipeline.tick(batch_of(model, 1), None, heard)
    assert entered.wait(TIMEOUT)
    pipeline.tick(batch_of(model, 2), None, heard)  # Fills the buffer.

    def third() -> None:
        pipeline.tick(batch_of(model, 3), None, heard)
        done.set()
    Thread(target=third, daemon=True).start()
    assert not done.wait(GRACE)
    go.set()
    assert done.wait(TIMEOUT)
    assert [outcome.request.number for outcome in heard.wait(3)] == [1, 2, 3]


def test_a_model_without_free_slot_does_not_hold_another_back(make) -> None:
    steps: list[str] = []
    go, entered = Event(), Event()

    def slow(rows: int) -> None:
        steps.append('m')
        entered.set()
        assert go.wait(TIMEOUT)
    models = {'m': Counting(slow), 'n': Counting(lambda rows: steps.append('n'))}
    heard = Heard()
    pipeline = make(1, 8, **models)
    pipeline.tick(batch_of(models['m'], 1), None, heard)
    assert entered.wait(TIMEOUT)
    pipeline.tick(batch_of(models['m'], 2), None, heard)
    pipeline.tick(batch_of(models['n'], 3, name='n'), None, heard)
    go.set()
    assert [outcome.request.number for outcome in heard.wait(3)] == [1, 3, 2]


def test_a_failure_drops_the_rows_that_were_in_it_only(make) -> None:
    calls: list[int] = []

    def before_step(rows: int) -> None:
        calls.append(rows)
        if len(calls) == 2:
            raise RuntimeError('out of ideas')
    model, heard = Counting(before_step), Heard()
    pipeline = make(m=model)
    pipeline.tick(batch_of(model, 1, 2), None, heard)
    dropped = heard.wait(2)
    for outcome in dropped:
        assert isinstance(outcome, Dropped) and outcome.reason is DropReason.FAILED
        assert outcome.detail == 'model m: ADiT stage: RuntimeError: out of ideas'
    pipeline.tick(batch_of(model, 3), None, heard)
    assert isinstance(heard.wait(3)[2], ActionChunk)


def test_closing_finishes_what_is_under_way(make) -> None:
    model, heard = Counting(), Heard()
    pipeline = Stepwise({'m': model}, {'m': slots_of(model, 1)}, open_device('cpu'), 8)
    for number in range(1, 6):
        pipeline.tick(batch_of(model, number), None, heard)
    pipeline.close()
    assert [outcome.request.number for outcome in heard.all] == [1, 2, 3, 4, 5]
