# SPDX-License-Identifier: Apache-2.0
"""
What is captured, shared and dropped as models come and go, on a CPU with graphs that are made up.

Whether a GPU bears it is tested in test_cuda_changes.py.
"""

from contextlib import nullcontext
import gc
from itertools import count
import logging
from threading import Event
from types import SimpleNamespace
from typing import ClassVar
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk
from robion_ros.engine import adit_graphs, graphed
from robion_ros.engine.adit_graphs import AditGraphs
from robion_ros.engine.changes import add_model, remove_model
from robion_ros.engine.cuda_prepared import CudaPrepared
from robion_ros.engine.device import CpuDevice
from robion_ros.engine.engine import Engine
from robion_ros.engine.graphed import GraphedModel
from robion_ros.engine.pipelines import Lockstep
from robion_ros.engine.profile import Cut, Load, Pair, WHOLE
from robion_ros.engine.warm_up import example

CAP, OTHER_CAP = Cut(88), Cut(104)
PARTITIONS = SimpleNamespace(sms=132, streams=lambda cap: SimpleNamespace(
    vlm=f'vlm {cap}', adit=f'adit {cap}'))


class Graph:
    """A captured call, without a capture."""

    captured: ClassVar[list[tuple[object, object]]] = []
    """Streams and memory, in order."""

    def __init__(self, function, outputs, stream, pool) -> None:
        self._function, self._outputs = function, outputs
        self.captured.append((stream, pool))

    def replay(self) -> None:
        for name, tensor in self._function().items():
            self._outputs[name].copy_(tensor)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch) -> None:
    streams, pools = count(1), count(1)
    monkeypatch.setattr(Graph, 'captured', [])
    monkeypatch.setattr(graphed, 'new_stream',
                        lambda device, priority=0: f'stream {next(streams)}')
    for module in (adit_graphs, graphed):
        monkeypatch.setattr(module, 'Graph', Graph)
        monkeypatch.setattr(module, 'held_to', lambda room, sms: nullcontext())
        monkeypatch.setattr(module, 'warm_up', lambda function, stream: {
            name: tensor.clone() for name, tensor in function().items()})
    monkeypatch.setattr(torch.cuda, 'stream', lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, 'graph_pool_handle', lambda: f'pool {next(pools)}')


@pytest.fixture
def wide(kit):
    """Return the class of another architecture, whose shapes are others."""
    class Wide(kit.Fake):
        def preprocess(self, observation):
            return {**super().preprocess(observation), 'more': torch.zeros(7)}

        def vlm(self, inputs):
            return {**super().vlm(inputs), 'more': inputs['more']}
    return Wide


@pytest.fixture
def prepare(kit):
    """Prepare models with a profile that knows a fake beside a fake, and what else it is told."""
    def prepare(models, caps=((1, 1), (2, 2)), partitions=PARTITIONS) -> CudaPrepared:
        shapes = GraphedModel(kit.Fake(), example('m', kit.Fake()), (1,), torch.device('cpu'),
                              {'vlm': None, 'adit': None}).shapes
        Graph.captured.clear()
        table = {Pair(Load(shapes, vlm), Load(shapes, adit)):
                 {WHOLE: 0.003, CAP: 0.001 if (vlm, adit) in caps else 0.004}
                 for vlm in (1, 2) for adit in (1, 2)}
        prepared = CudaPrepared(models, (2, 1), torch.device('cpu'), partitions,
                                SimpleNamespace(read=lambda: table, path='profile.json'))
        prepared.guard()
        return prepared
    return prepare


def graphs(model: GraphedModel) -> tuple[set[tuple[int, int]], set[tuple[int, Cut]]]:
    return set(model.vlm_graphs), set(model.adit_graphs.graphs)


UNCAPPED = {(1, 0), (2, 0)}, {(1, WHOLE), (2, WHOLE)}
CAPPED = UNCAPPED[0] | {(1, CAP.cap), (2, CAP.cap)}, UNCAPPED[1] | {(1, CAP), (2, CAP)}


def test_variant_shares_profile_streams_and_memory(kit, prepare) -> None:
    prepared = prepare({'m': kit.Fake()})
    first = prepared.models['m']
    assert graphs(first) == CAPPED
    before, count = dict(first.cuts), len(Graph.captured)
    added = prepared.add('n', kit.Fake(gain=3.0))
    variant = added.models['n']
    assert graphs(first) == graphs(variant) == CAPPED
    assert len(Graph.captured) == 2 * count, 'nothing of the first was captured again'
    assert sorted(set(Graph.captured[:count])) == sorted(set(Graph.captured[count:]))
    assert len({pool for _, pool in Graph.captured}) == 4, 'by stage, and whether under a cap'
    assert first.cuts.items() >= before.items()
    for name, model in (('m', first), ('n', variant)):
        for other in ('m', 'n'):
            assert [model.cut(size, Load(other, size)) for size in (1, 2)] == [CAP, CAP]
            assert model.cuts[Pair(Load(other, 2), Load(name, 1))] == WHOLE
    assert added.times[Pair(Load('m', 1), Load('n', 1))] == 0.001
    assert all('n' in (pair.vlm.model, pair.adit.model) for pair in added.times)
    assert list(prepared.models) == ['m'], 'the engine takes it when it has tried it'


def test_stages_are_captured_of_streams_of_their_own_and_warmed_up_on_another(
        kit, prepare, monkeypatch) -> None:
    """What runs while others replay must have no workspace that a graph has."""
    warmed = []
    for module in (adit_graphs, graphed):
        monkeypatch.setattr(module, 'warm_up', lambda function, stream: (
            warmed.append(stream),
            {name: tensor.clone() for name, tensor in function().items()})[1])
    prepared = prepare({'m': kit.Fake()})
    del warmed[:]
    prepared.add('n', kit.Fake())
    assert len(warmed) == 6 and len(set(warmed)) == 1
    assert not set(warmed) & {stream for stream, _ in Graph.captured}


def test_what_the_profile_lacks_is_said_and_runs_without_caps(kit, prepare, wide,
                                                              caplog) -> None:
    prepared = prepare({'m': kit.Fake()})
    with caplog.at_level(logging.WARNING):
        model = prepared.add('w', wide()).models['w']
    assert graphs(model) == UNCAPPED
    assert model.cut(1, Load('m', 1)) == prepared.models['m'].cut(1, Load('w', 1)) == WHOLE
    assert 'w: 12 pairs of batches are not in the profile' in caplog.text
    assert 'robion profile' in caplog.text


def test_failed_capture_leaves_everything_as_it_was(kit, prepare, monkeypatch) -> None:
    prepared = prepare({'m': kit.Fake()})
    first = prepared.models['m']
    before = dict(first.cuts), graphs(first)

    def fail(self, *arguments) -> None:
        raise RuntimeError('out of memory')
    for kind, name in ((GraphedModel, 'capture'), (AditGraphs, 'capture'),
                       (AditGraphs, 'capture_whole'), (GraphedModel, '_warm_up')):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, fail)
            with pytest.raises(RuntimeError, match='out of memory'):
                prepared.add('n', kit.Fake())
        assert (dict(first.cuts), graphs(first)) == before
        assert list(prepared.models) == list(prepared._graphed) == ['m']
    assert graphs(prepared.add('n', kit.Fake()).models['n']) == CAPPED


def test_graphs_that_served_one_model_alone_go_with_it(kit, prepare) -> None:
    prepared = prepare({'m': kit.Fake()})
    first = prepared.models['m']
    before = dict(first.cuts), graphs(first)
    table = prepared._file.read()
    for pair in list(table):
        table[pair] = {WHOLE: 0.003, OTHER_CAP: 0.001}  # It was measured again meanwhile.
    prepared.add('n', kit.Fake())
    assert {(1, OTHER_CAP.cap), (1, CAP.cap)} <= set(first.vlm_graphs)
    assert first.cut(1, Load('m', 1)) == CAP and first.cut(1, Load('n', 1)) == OTHER_CAP
    prepared.remove('n')
    assert (dict(first.cuts), graphs(first)) == before


def test_memory_that_all_graphs_have_left_is_taken_anew(kit, prepare) -> None:
    """No graph may come to a pool of torch that had some and has none."""
    prepared = prepare({'m': kit.Fake()})
    old = {pool for _, pool in Graph.captured}
    prepared.remove('m')
    Graph.captured.clear()
    prepared.add('m', kit.Fake())
    new = {pool for _, pool in Graph.captured}
    assert len(new) == 4 and not new & old


class Compiled(nn.Module):
    """A network whose layer holds itself, as compiled ones do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.layer.forward = lambda x, layer=self.layer: nn.Linear.forward(layer, x)


def test_compiled_layers_are_freed_without_a_collection_of_garbage(kit, prepare) -> None:
    prepared = prepare({'m': kit.Fake()}, partitions=None)
    gc.collect()
    gc.disable()
    try:
        fake = kit.Fake()
        fake.network = Compiled()
        seen = weakref.ref(fake.network.layer), weakref.ref(fake)
        prepared.add('n', fake)
        prepared.remove('n')
        del fake
        assert [ref() for ref in seen] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize('caps', [(), ((1, 1), (2, 2)), ((1, 2), (2, 1), (1, 1))])
def test_engine_serves_on_while_graphs_come_and_go(kit, prepare, wide, caps) -> None:
    fake = kit.Fake(gain=2.0)
    ready = prepare({'m': fake}, caps)
    outcomes = kit.Outcomes()
    engine = Engine(ready.models, Lockstep(ready.models, CpuDevice()),
                    ServerConfig(('m',), late='serve'), outcomes, ready.times)
    robots = {f'robot_{index}': 'm' for index in range(5)}
    models = {'m': fake, 'n': kit.Fake(gain=5.0), 'w': wide(gain=9.0)}
    engine.assign(1, robots)
    requests, over = [], Event()

    def ask(robot: str, model: str) -> None:
        requests.append(kit.request(len(requests) + 1, robot, model))
        engine.submit(requests[-1])

    def traffic() -> None:
        while not over.is_set():
            for robot in robots:
                ask(robot, 'm')
            outcomes.wait(len(requests) - 5)
    thread = kit.begin(traffic)
    try:
        for epoch in range(2, 12):
            for name in ('n', 'w'):
                add_model(engine, ready, name, models[name])
            engine.assign(epoch, {**robots, 'new': 'n', 'newer': 'w'})
            for name, robot in (('n', 'new'), ('w', 'newer')):
                engine.submit(request := kit.request(10**6 + 10 * epoch + len(name), robot, name))
                requests.append(request)
            engine.assign(epoch, robots)
            for name in ('n', 'w'):
                assert remove_model(engine, ready, name, kit.TIMEOUT)
    finally:
        over.set()
        thread.result(kit.TIMEOUT)
        assert engine.drain(kit.TIMEOUT)
        engine.stop()
    assert len(outcomes.all) == len(requests)
    chunks = [outcome for outcome in outcomes.all if isinstance(outcome, ActionChunk)]
    assert len({chunk.request.model for chunk in chunks}) == 3
    for chunk in chunks:
        np.testing.assert_allclose(chunk.actions, models[chunk.request.model].expected(
            chunk.request), rtol=1e-3, atol=1e-3)
