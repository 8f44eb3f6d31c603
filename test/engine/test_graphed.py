# SPDX-License-Identifier: Apache-2.0
"""
What surrounds the graphs, on a CPU: requests packed ahead, rows put in place, contexts kept.

A graph is made up here: its replay calls the function that it was captured from. What is like
that on a GPU alone is tested in test_cuda.py.
"""

from collections.abc import Callable
from contextlib import nullcontext
import gc
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk
from robion_ros.engine import adit_graphs, graphed
from robion_ros.engine.batch import make_ticket
from robion_ros.engine.device import CpuDevice, open_device, Prepared
from robion_ros.engine.engine import make_engine
from robion_ros.engine.graphed import GraphedModel
from robion_ros.engine.pipelines import Guarded, Lockstep, Monolithic, PIPELINES
from robion_ros.engine.profile import Cut, Load, Pair, WHOLE
from robion_ros.engine.warm_up import example


class Graph:
    """A captured call, without a capture."""

    def __init__(self, function: Callable, outputs, stream, pool) -> None:
        self._function, self._outputs, self.pool = function, outputs, pool
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for name, tensor in self._function().items():
            self._outputs[name].copy_(tensor)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(graphed, 'new_stream', lambda device, priority=0: None)
    for module in (graphed, adit_graphs):
        monkeypatch.setattr(module, 'Graph', Graph)
        monkeypatch.setattr(module, 'warm_up', lambda function, stream: {
            name: tensor.clone() for name, tensor in function().items()})


def graph(model, sizes=(2, 1)) -> GraphedModel:
    return GraphedModel(model, example('m', model), sizes, torch.device('cpu'),
                        {'vlm': 'vlm', 'adit': 'adit'})


def run(pipeline, batches) -> dict[int, np.ndarray]:
    outcomes, in_flight = [], None
    for batch in batches:
        in_flight = pipeline.tick(batch, in_flight, outcomes.append)
    while in_flight:
        in_flight = pipeline.tick(None, in_flight, outcomes.append)
    pipeline.close()
    assert all(isinstance(outcome, ActionChunk) for outcome in outcomes), outcomes
    return {outcome.request.number: outcome.actions for outcome in outcomes}


@pytest.mark.parametrize('kind', sorted(PIPELINES))
def test_chunks_are_those_of_the_model_itself(kit, tiny, kind: str) -> None:
    """Batches of changing size follow each other through the same buffers."""
    model = graph(tiny)
    assert isinstance(model, Guarded)
    numbers = (1, 2), (3,), (4, 5), (6, 7), (8,), (9,), (10, 11)
    found, expected = (
        run(kind_({'m': each}, open_device('cpu')), [kit.batch_of(each, *n) for n in numbers])
        for kind_, each in ((PIPELINES[kind], model), (Monolithic, tiny)))
    assert sorted(found) == list(range(1, 12))
    for number, actions in expected.items():
        np.testing.assert_allclose(found[number], actions, atol=1e-5)


def test_requests_are_packed_when_they_are_made(kit) -> None:
    model = graph(kit.Fake())
    ticket = make_ticket(model, kit.request(7), 0.0)
    views = model._blocks.layout.views(ticket.block.memory)
    assert views['image'].item() == 7.0 and views['state'].tolist() == [7.0, 0.25]
    assert torch.equal(views['noise'], ticket.noise)
    assert make_ticket(kit.Fake(), kit.request(7), 0.0).block is None


def test_context_and_noise_are_not_those_of_the_next_batch(kit) -> None:
    model = graph(kit.Fake())
    first, second = (kit.batch_of(model, *numbers) for numbers in ((1, 2), (3, 4)))
    context, noise = model.vlm_beside([each.block for each in first.tickets], None)
    model.vlm_beside([each.block for each in second.tickets], None)
    assert context['state'][:, 0].tolist() == [1, 2]
    assert torch.equal(noise, torch.stack([each.noise for each in first.tickets]))


def test_vlm_and_adit_are_those_of_a_model_like_any_other(kit) -> None:
    fake = kit.Fake()
    model = graph(fake)
    ticket = kit.batch_of(fake, 5).tickets[0]
    inputs = {name: tensor[None] for name, tensor in ticket.inputs.items()}
    for each, expected in zip(model.vlm(inputs).values(), fake.vlm(inputs).values(), strict=True):
        assert torch.equal(each, expected)
    assert torch.equal(model.adit(fake.vlm(inputs), ticket.noise[None]),
                       fake.adit(fake.vlm(inputs), ticket.noise[None]))


@pytest.fixture
def partitions(monkeypatch) -> SimpleNamespace:
    """Divide a GPU that is not there; told hears how many SMs each capture has."""
    told = []
    for module in (graphed, adit_graphs):
        monkeypatch.setattr(module, 'held_to',
                            lambda room, sms: nullcontext(told.append((room, sms))))
    return SimpleNamespace(sms=132, told=told,
                           streams=lambda cap: SimpleNamespace(vlm=0, adit=1))


def test_stages_run_under_the_cut_of_the_two_batches_that_meet(kit, partitions) -> None:
    model = graph(kit.Fake())
    for size, cap in ((1, 88), (2, 88), (2, 96), (2, 96)):
        model.capture(size, Cut(cap), partitions, None)
        model.adit_graphs.capture(3 - size, Cut(cap), partitions, None)
    assert partitions.told == [(88, 132), (44, 132), (88, 132), (44, 132), (96, 132), (36, 132)]
    one, two, other = Load('m', 1), Load('m', 2), Load('n', 1)
    model.keep('m', {Pair(one, one): WHOLE, Pair(two, one): Cut(96), Pair(one, two): Cut(88),
                     Pair(other, two): Cut(88)})
    assert set(model.vlm_graphs) == {(1, 0), (2, 0), (2, 96), (1, 88)}
    assert set(model.adit_graphs.graphs) == {(1, WHOLE), (2, WHOLE), (1, Cut(96)), (2, Cut(88))}
    for numbers, beside in (((1, 2), one), ((3,), one), ((4, 5), None), ((6, 7), other)):
        tickets = kit.batch_of(model, *numbers).tickets
        context, noise = model.vlm_beside([ticket.block for ticket in tickets], beside)
        model.adit_beside(context, noise, beside)
    assert {key: each.replays for key, each in model.vlm_graphs.items()} == {
        (2, 96): 1, (1, 0): 1, (2, 0): 2, (1, 88): 0}
    assert {key: each.replays for key, each in model.adit_graphs.graphs.items()} == {
        (2, Cut(88)): 2, (1, WHOLE): 1, (2, WHOLE): 1, (1, Cut(96)): 0}


@pytest.mark.parametrize('steps', [1, 2, 3])
def test_an_adit_stage_that_leaves_its_part_gives_the_same_actions(kit, tiny, partitions,
                                                                   steps) -> None:
    assert tiny.denoising_steps > 3
    model, one, two = graph(tiny), Load('m', 1), Load('m', 2)
    for cut in (Cut(96), Cut(96, steps)):
        model.adit_graphs.capture(2, cut, partitions, None)
    model.keep('m', {Pair(one, two): Cut(96, steps)})
    assert set(model.adit_graphs.graphs) == {(1, WHOLE), (2, WHOLE), (2, Cut(96, steps))}
    assert set(model.adit_graphs.rests) == {(2, steps)}
    for numbers in ((1, 2), (3, 4)):
        tickets = kit.batch_of(model, *numbers).tickets
        context, noise = model.vlm_beside([ticket.block for ticket in tickets], None)
        torch.testing.assert_close(model.adit_beside(context, noise, one),
                                   tiny.adit(context, noise), atol=1e-5, rtol=1e-5)
    assert model.adit_graphs.graphs[2, WHOLE].replays == 0
    model.keep('m', {})
    assert not model.adit_graphs.rests


def test_blocks_come_home_and_no_sooner_than_the_vlm_has_ended(kit) -> None:
    model = graph(kit.Fake())
    free = len(model._blocks._free)
    pipeline = Lockstep({'m': model}, open_device('cpu'))
    batch = kit.batch_of(model, 1, 2)
    held = []
    model_vlm_beside = model.vlm_beside

    def watch(blocks, beside):
        gc.collect()
        held.append(free - len(model._blocks._free))
        return model_vlm_beside(blocks, beside)
    model.vlm_beside = watch
    outcomes = []
    in_flight = pipeline.tick(batch, None, outcomes.append)
    del batch
    while in_flight:
        in_flight = pipeline.tick(None, in_flight, outcomes.append)
    pipeline.close()
    del in_flight
    gc.collect()
    assert held == [2] and len(outcomes) == 2
    assert len(model._blocks._free) == free


class Graphing(CpuDevice):
    """A CPU that runs models in graphs that are made up."""

    def prepare(self, models, max_batch, beside) -> Prepared:
        return Prepared({name: graph(model, (4, 2, 1)) for name, model in models.items()})


@pytest.mark.parametrize('kind', sorted(PIPELINES))
def test_engine_answers_a_crowd_through_few_blocks(kit, monkeypatch, kind: str) -> None:
    """More requests than blocks, superseded ones among them: each chunk is its request's own."""
    monkeypatch.setattr(graphed, 'BLOCKS', 5)
    outcomes = kit.Outcomes()
    fake = kit.Fake(gain=3.0)
    robots = {f'robot_{index}': 'm' for index in range(9)}
    engine = make_engine({'m': fake}, Graphing(), ServerConfig(('m',), max_batch=4, engine=kind),
                         outcomes)
    engine.assign(1, robots)

    def submit(first: int) -> None:
        for number in range(first, 300, 3):
            engine.submit(kit.request(number, f'robot_{number % 9}'))
    for thread in [kit.begin(submit, first) for first in (1, 2, 3)]:
        thread.result(kit.TIMEOUT)
    assert engine.drain(kit.TIMEOUT)
    engine.stop()
    chunks = [outcome for outcome in outcomes.all if isinstance(outcome, ActionChunk)]
    assert len(outcomes.all) == 299 and len(chunks) >= 9
    gc.collect()
    assert len(engine._models['m']._blocks._free) == 5
    for chunk in chunks:
        np.testing.assert_allclose(chunk.actions, fake.expected(chunk.request), rtol=1e-4,
                                   atol=1e-4)
