# SPDX-License-Identifier: Apache-2.0
"""The order of stages, and that it changes no result."""

from threading import Barrier

import numpy as np
import pytest
import torch

from robion_ros.core import ActionChunk, DropReason
from robion_ros.engine.answers import describe
from robion_ros.engine.device import open_device
from robion_ros.engine.pipelines import Lockstep, Monolithic, PIPELINES


def run_through(pipeline, batches) -> list:
    """Run batches one after the other, as the engine does; return the outcomes."""
    outcomes, in_flight = [], None
    for batch in batches:
        in_flight = pipeline.tick(batch, in_flight, outcomes.append)
    while in_flight:
        in_flight = pipeline.tick(None, in_flight, outcomes.append)
    return outcomes


def test_lockstep_launches_both_stages_behind_those_in_flight(kit) -> None:
    ledger, model = kit.Ledger(), kit.Fake()
    pipeline = Lockstep({'m': model}, ledger)

    def answer(outcome) -> None:
        ledger.lines.append(f'answer {outcome.request.number}')
    first = pipeline.tick(kit.batch_of(model, 1), None, answer)
    assert ledger.take() == ['launch vlm 1']
    second = pipeline.tick(kit.batch_of(model, 2), first, answer)
    assert ledger.take() == ['launch vlm 2 after vlm 1', 'launch adit 1 after vlm 1',
                             'await vlm 1']
    third = pipeline.tick(None, second, answer)
    assert ledger.take() == ['launch adit 2 after vlm 2, adit 1', 'await adit 1', 'answer 1',
                             'await vlm 2']
    assert pipeline.tick(None, third, answer) is None
    assert ledger.take() == ['await adit 2', 'answer 2']
    pipeline.close()
    assert ledger.take() == ['close vlm', 'close adit']


def test_lockstep_takes_as_long_as_from_its_first_start_to_its_last_end(kit) -> None:
    pipeline, model = Lockstep({'m': kit.Fake()}, kit.Ledger()), kit.Fake()
    first = pipeline.tick(kit.batch_of(model, 1), None, lambda outcome: None)
    second = pipeline.tick(kit.batch_of(model, 2, 3), first, lambda outcome: None)
    pipeline.tick(None, second, lambda outcome: None)
    assert first.loads == (('m', 1), None) and first.seconds == kit.Ledger.VLM
    assert second.loads == (('m', 2), ('m', 1)) and second.seconds == kit.Ledger.ADIT


def test_monolithic_runs_one_stage_after_the_other(kit) -> None:
    ledger, model = kit.Ledger(), kit.Fake()
    pipeline = Monolithic({'m': model}, ledger)
    first = pipeline.tick(kit.batch_of(model, 1), None, lambda outcome: None)
    assert ledger.take() == ['launch monolithic 1', 'launch monolithic 2']
    second = pipeline.tick(kit.batch_of(model, 2), first, lambda outcome: None)
    assert ledger.take() == ['launch monolithic 3', 'launch monolithic 4', 'await monolithic 1',
                             'await monolithic 2']
    assert pipeline.tick(None, second, lambda outcome: None) is None
    assert ledger.take() == ['await monolithic 3', 'await monolithic 4']
    pipeline.close()
    assert ledger.take() == ['close monolithic']


def test_stages_of_a_lockstep_meet(kit) -> None:
    meet = Barrier(2, timeout=kit.TIMEOUT)

    def hook(stage: str, numbers: tuple[int, ...]) -> None:
        if (stage, numbers) in (('vlm', (2,)), ('adit', (1,))):
            meet.wait()
    model = kit.Fake(hook)
    pipeline = Lockstep({'m': model}, open_device('cpu'))
    outcomes = run_through(pipeline, [kit.batch_of(model, number) for number in (1, 2)])
    pipeline.close()
    assert [type(outcome) for outcome in outcomes] == [ActionChunk] * 2


class GuardedFake:
    """A model that writes down what its VLM stages were to run beside."""

    def __init__(self, fake) -> None:
        self.fake, self.beside, self.adit_besides = fake, [], []

    def __getattr__(self, name: str):
        return getattr(self.fake, name)

    def pack(self, inputs, noise):
        return {**inputs, 'noise': noise}

    def vlm_beside(self, blocks, beside):
        self.beside.append((len(blocks), beside))
        stacked = {name: torch.stack([block[name] for block in blocks]) for name in blocks[0]}
        noise = stacked.pop('noise')
        return self.fake.vlm(stacked), noise

    def adit_beside(self, context, noise, beside):
        self.adit_besides.append((len(noise), beside))
        return self.fake.adit(context, noise)


@pytest.mark.parametrize(('kind', 'expected', 'adit'), [
    (Lockstep, [(2, None), (1, ('m', 2)), (2, ('m', 1))],
     [(2, ('m', 1)), (1, ('m', 2)), (2, None)]),
    (Monolithic, [(2, None), (1, None), (2, None)], [(2, None), (1, None), (2, None)])],
    ids=['lockstep', 'monolithic'])
def test_stages_are_told_what_runs_beside_them(kit, kind, expected, adit) -> None:
    model = GuardedFake(kit.Fake())
    pipeline = kind({'m': model}, kit.Ledger())
    found = ends(run_through(pipeline, [kit.batch_of(model, 1, 2), kit.batch_of(model, 3),
                                        kit.batch_of(model, 4, 5)]))
    assert found == [(number, 'chunk') for number in range(1, 6)]
    assert (model.beside, model.adit_besides) == (expected, adit)


def chunks(pipeline_type, models, batches) -> dict[int, np.ndarray]:
    pipeline = pipeline_type(models, open_device('cpu'))
    outcomes = run_through(pipeline, batches)
    pipeline.close()
    return {outcome.request.number: outcome.actions for outcome in outcomes}


BATCHINGS = [((1,), (2,), (3,), (4,), (5,), (6,)), ((1, 2), (3, 4), (5, 6)),
             ((6, 1), (4, 2), (5, 3)), ((5, 3, 1, 2), (4, 6))]
BATCHING_IDS = ['one_by_one', 'pairs', 'other_pairs', 'four_and_two']


@pytest.mark.parametrize('batching', BATCHINGS, ids=BATCHING_IDS)
@pytest.mark.parametrize('kind', sorted(PIPELINES))
def test_chunk_does_not_depend_on_pipeline_and_company(kit, kind: str, batching) -> None:
    model = kit.Fake(gain=3.0)
    found = chunks(PIPELINES[kind], {'m': model},
                   [kit.batch_of(model, *numbers) for numbers in batching])
    alone = chunks(Monolithic, {'m': model}, [kit.batch_of(model, n) for n in range(1, 7)])
    assert sorted(found) == list(range(1, 7))
    for number, actions in found.items():
        assert np.array_equal(actions, alone[number])
        expected = model.expected(kit.request(number, f'robot_{number}'))
        np.testing.assert_allclose(actions, expected, rtol=1e-5)


@pytest.mark.parametrize('batching', BATCHINGS, ids=BATCHING_IDS)
def test_chunk_of_tiny_does_not_depend_on_company(kit, tiny, batching) -> None:
    found = chunks(Lockstep, {'m': tiny}, [kit.batch_of(tiny, *numbers) for numbers in batching])
    alone = chunks(Monolithic, {'m': tiny}, [kit.batch_of(tiny, n) for n in range(1, 7)])
    assert sorted(found) == list(range(1, 7))
    for number, actions in found.items():
        assert actions.shape == (tiny.spec.horizon, tiny.spec.action_size)
        np.testing.assert_allclose(actions, alone[number], atol=1e-5)
        assert np.abs(actions - alone[number % 6 + 1]).max() > 1e-3


def test_lockstep_equals_monolithic_bit_for_bit(kit, tiny) -> None:
    batches = [kit.batch_of(tiny, *pair) for pair in ((1, 2), (3, 4), (5, 6))]
    found, alone = (chunks(kind, {'m': tiny}, batches) for kind in (Lockstep, Monolithic))
    assert all(np.array_equal(found[number], alone[number]) for number in range(1, 7))


def ends(outcomes) -> list[tuple[int, str]]:
    return [(outcome.request.number,
             'chunk' if isinstance(outcome, ActionChunk) else outcome.detail)
            for outcome in outcomes]


@pytest.mark.parametrize('kind', sorted(PIPELINES))
@pytest.mark.parametrize(('stage', 'detail'), [
    ('vlm', 'model m: VLM stage: RuntimeError: out of memory'),
    ('adit', 'model m: ADiT stage: RuntimeError: out of memory'),
])
def test_failed_stage_drops_its_batch_only(kit, kind: str, stage: str, detail: str) -> None:
    def hook(at: str, numbers: tuple[int, ...]) -> None:
        if at == stage and 3 in numbers:
            raise RuntimeError('out\nof   memory')
    model = kit.Fake(hook)
    pipeline = PIPELINES[kind]({'m': model}, open_device('cpu'))
    outcomes = run_through(pipeline, [kit.batch_of(model, *numbers)
                                      for numbers in ((1, 2), (3, 4), (5, 6))])
    pipeline.close()
    assert sorted(ends(outcomes)) == [(1, 'chunk'), (2, 'chunk'), (3, detail), (4, detail),
                                      (5, 'chunk'), (6, 'chunk')]
    assert {outcome.reason for outcome in outcomes if outcome.request.number in (3, 4)} == {
        DropReason.FAILED}


def nothing(actions: torch.Tensor, observation) -> None:
    return None


def not_a_number(actions: torch.Tensor, observation) -> np.ndarray:
    return np.where(np.arange(4) == 3, np.nan, actions.numpy())


def unreadable(actions: torch.Tensor, observation) -> np.ndarray:
    raise ValueError('no joint 9')


@pytest.mark.parametrize(('postprocess', 'detail'), [
    (unreadable, 'model m: postprocessing: ValueError: no joint 9'),
    (not_a_number, 'model m gave an action that is not finite'),
    (nothing, 'model m: postprocessing: TypeError: '),
], ids=['raises', 'nan', 'none'])
def test_bad_row_drops_its_request_only(kit, postprocess, detail: str) -> None:
    model = kit.Fake()
    good = model.postprocess
    model.postprocess = lambda actions, observation: (
        postprocess if observation.state[0] == 2 else good)(actions, observation)
    pipeline = Lockstep({'m': model}, open_device('cpu'))
    outcomes = run_through(pipeline, [kit.batch_of(model, 1, 2), kit.batch_of(model, 3)])
    pipeline.close()
    assert [number for number, end in ends(outcomes) if end == 'chunk'] == [1, 3]
    assert outcomes[1].reason is DropReason.FAILED and outcomes[1].detail.startswith(detail)


def test_infinite_row_of_the_adit_stage_is_dropped_alone(kit) -> None:
    model = kit.Fake()
    batch = kit.batch_of(model, 1, 2)
    batch.tickets[0].noise[2, 1] = float('inf')
    outcomes = run_through(Monolithic({'m': model}, kit.Ledger()), [batch])
    assert ends(outcomes) == [(1, 'model m gave an action that is not finite'), (2, 'chunk')]


def test_chunk_carries_its_times_and_company(kit) -> None:
    model = kit.Fake()
    chunk, other = run_through(Lockstep({'m': model}, kit.Ledger()),
                               [kit.batch_of(model, 1, 2)])
    assert chunk.batch == other.batch == 2
    assert chunk.timings.queue == 0.0 and chunk.timings.engine == chunk.finished
    assert (chunk.timings.vlm, chunk.timings.adit) == (0.25, 0.5)
    assert chunk.finished <= other.finished


@pytest.mark.parametrize(('error', 'line'), [
    (ValueError('bad'), 'ValueError: bad'),
    (RuntimeError('CUDA error:\n  out of memory\n'), 'RuntimeError: CUDA error: out of memory'),
    (KeyError('state'), "KeyError: 'state'"),
], ids=['plain', 'many_lines', 'key'])
def test_error_becomes_one_line(error: Exception, line: str) -> None:
    assert describe(error) == line
