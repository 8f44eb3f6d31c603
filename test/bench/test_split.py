# SPDX-License-Identifier: Apache-2.0
"""Two devices: the stages do not wait for each other, and nothing gets lost between."""

from threading import Event

from robion_ros.bench.observations import Observations
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.split import Split
from robion_ros.core import ActionChunk, Dropped, Request
from robion_ros.engine.batch import Batch, make_ticket
from robion_ros.engine.device import CpuDevice

TIMEOUT = 20.0


class Held:
    """A model whose ADiT stage waits, or fails."""

    def __init__(self, model) -> None:
        self._model = model
        self.spec, self.postprocess = model.spec, model.postprocess
        self.go = Event()
        self.fails = False

    def adit(self, context, noise):
        assert self.go.wait(TIMEOUT)
        if self.fails:
            raise RuntimeError('lost on the way')
        return self._model.adit(context, noise)


def batch_of(model, *numbers: int) -> Batch:
    source = Observations(2, 3, 48, 64, 1)
    return Batch('a', tuple(make_ticket(model, Request(f'r{n}', n, 'a', source.make(), 0.0, 0.0),
                                        0.0) for n in numbers), 0.0)


def test_the_next_vlm_stage_runs_while_the_adit_stage_does(prepared: Prepared) -> None:
    model, outcomes = prepared.models['a'], []
    second = Held(model)
    pipeline = Split({'a': model}, CpuDevice(), {'a': second}, CpuDevice())
    for number in (1, 2):  # Neither waits for an ADiT stage.
        assert pipeline.tick(batch_of(model, number), None, outcomes.append) is None
    assert outcomes == []
    second.go.set()
    pipeline.close()
    assert [outcome.request.number for outcome in outcomes] == [1, 2]
    assert all(isinstance(outcome, ActionChunk) for outcome in outcomes)


def test_a_failure_drops_its_batch_only(prepared: Prepared) -> None:
    model, outcomes = prepared.models['a'], []
    second = Held(model)
    second.go.set()
    second.fails = True
    pipeline = Split({'a': model}, CpuDevice(), {'a': second}, CpuDevice())
    pipeline.tick(batch_of(model, 1, 2), None, outcomes.append)
    pipeline.close()
    assert [outcome.detail for outcome in outcomes if isinstance(outcome, Dropped)] == [
        'model a: ADiT stage: RuntimeError: lost on the way'] * 2
