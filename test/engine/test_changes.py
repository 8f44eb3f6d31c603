# SPDX-License-Identifier: Apache-2.0
"""Models come and go while an engine serves, and nobody who is served notices."""

import gc
from threading import Event
import weakref

import numpy as np
import pytest
import torch

from robion_ros.config import CameraConfig, ModelConfig, ServerConfig
from robion_ros.core import ActionChunk, DropReason
from robion_ros.engine.changes import add_model, remove_model
from robion_ros.engine.device import CpuDevice
from robion_ros.engine.engine import Engine
from robion_ros.engine.pipelines import PIPELINES
from robion_ros.models import registry

from ..waiting import until

KINDS = sorted(PIPELINES)
ROBOTS = {f'robot_{index}': 'm' for index in range(4)}
CONFIG = ModelConfig('tiny', {'wrist': CameraConfig()}, ('x', 'y'), 2.0, 1.0, 1, seed=3)


@pytest.fixture
def serve(kit):
    """Serve models with an engine that others can be added to."""
    engines = []

    def serve(models, robots=ROBOTS, kind: str = 'lockstep', device=None):
        device = device or CpuDevice()
        ready = device.prepare(models, 2, True)
        outcomes = kit.Outcomes()
        server = ServerConfig(tuple(models), engine=kind)
        engine = Engine(ready.models, PIPELINES[kind](ready.models, device), server, outcomes)
        engine.assign(1, robots)
        engines.append(engine)
        return engine, ready, outcomes
    yield serve
    for engine in engines:
        kit.begin(engine.stop).result(kit.TIMEOUT)


class Traffic:
    """Robots that ask for as long as it is open, each as soon as it has its answer."""

    def __init__(self, kit, engine, outcomes, robots) -> None:
        self.kit, self.engine, self.outcomes = kit, engine, outcomes
        self.requests, self.over = [], Event()
        self.thread = kit.begin(self.run, sorted(robots.items()))

    def run(self, robots) -> None:
        while not self.over.is_set():
            for robot, model in robots:
                request = self.kit.request(len(self.requests) + 1, robot, model)
                self.requests.append(request)
                self.engine.submit(request)
            self.outcomes.wait(len(self.requests))

    def lasts(self, count: int) -> None:
        """Wait for so many more answers."""
        self.outcomes.wait(len(self.requests) + count)

    def end(self, model) -> None:
        """Stop asking; check that each request got the one right chunk."""
        self.over.set()
        self.thread.result(self.kit.TIMEOUT)
        assert set(self.outcomes.count().values()) == {1}
        assert len(self.outcomes.all) == len(self.requests)
        for outcome in self.outcomes.all:
            assert isinstance(outcome, ActionChunk), outcome
            np.testing.assert_allclose(outcome.actions, model.expected(outcome.request), rtol=1e-4,
                                       atol=1e-4)


@pytest.mark.parametrize('kind', KINDS)
def test_model_comes_serves_and_goes_while_others_are_served(kit, serve, kind: str) -> None:
    fake, other = kit.Fake(), kit.Fake(gain=7.0)
    engine, ready, outcomes = serve({'m': fake}, kind=kind)
    traffic = Traffic(kit, engine, outcomes, ROBOTS)
    for epoch in range(2, 8):
        add_model(engine, ready, 'n', other)
        assert not any(outcome.request.model == 'n' for outcome in outcomes.all)
        engine.assign(epoch, {**ROBOTS, 'new': 'n'})
        heard = kit.Outcomes()
        engine._on_outcome, before = (
            lambda outcome, heard=heard: (heard if outcome.request.model == 'n' else outcomes)(
                outcome)), engine._on_outcome
        request = kit.request(epoch, 'new', 'n')
        engine.submit(request)
        np.testing.assert_allclose(heard.of(epoch).actions, other.expected(request), rtol=1e-4)
        engine._on_outcome = before
        with pytest.raises(ValueError, match='new are served with model n'):
            remove_model(engine, ready, 'n', kit.TIMEOUT)
        engine.assign(epoch, ROBOTS)
        assert remove_model(engine, ready, 'n', kit.TIMEOUT)
        assert list(ready.models) == ['m']
    traffic.lasts(20)
    traffic.end(fake)


def test_every_batch_size_is_tried_between_locksteps(kit, serve) -> None:
    script = kit.Script('vlm')
    sizes = []

    def hook(stage: str, numbers: tuple[int, ...]) -> None:
        if stage in ('vlm', 'adit'):
            sizes.append((stage, len(numbers)))
    engine, ready, outcomes = serve({'m': kit.Fake(script)})
    engine.submit(kit.request(1, 'robot_0'))
    script.wait('vlm', 1)
    adding = kit.begin(add_model, engine, ready, 'n', kit.Fake(hook))
    assert kit.waits(adding) and not sizes, 'a lockstep runs'
    engine.submit(kit.request(2, 'robot_1'))
    script.free()
    adding.result(kit.TIMEOUT)
    assert sizes == [('vlm', 2), ('adit', 2), ('vlm', 1), ('adit', 1)]
    outcomes.wait(2)
    assert sorted(outcomes.ends()) == [(1, None), (2, None)]


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize(('stage', 'size', 'message'), [
    ('preprocess', 1, 'model n cannot preprocess: ValueError: broken'),
    ('vlm', 2, 'model n fails at batch 2: .*broken'),
    ('adit', 1, 'model n fails at batch 1: .*broken'),
    ('postprocess', 1, 'model n fails at batch 2: .*broken'),
])
def test_model_that_cannot_run_changes_nothing(kit, serve, kind: str, stage: str, size: int,
                                               message: str) -> None:
    def hook(name: str, numbers: tuple[int, ...]) -> None:
        if name == stage and len(numbers) == size:
            raise ValueError('broken')
    fake = kit.Fake()
    engine, ready, outcomes = serve({'m': fake}, kind=kind)
    traffic = Traffic(kit, engine, outcomes, ROBOTS)
    for _ in range(3):
        broken = kit.Fake(hook)
        seen = weakref.ref(broken)
        with pytest.raises(RuntimeError, match=message):
            add_model(engine, ready, 'n', broken)
        assert list(ready.models) == ['m'] and 'n' not in engine._queues._queues
    add_model(engine, ready, 'n', kit.Fake())
    traffic.lasts(8)
    traffic.end(fake)
    del broken
    gc.collect()  # Of what pytest keeps of the errors.
    assert seen() is None


def test_no_model_takes_the_place_of_another(kit, serve) -> None:
    engine, ready, outcomes = serve({'m': kit.Fake()})
    with pytest.raises(ValueError, match='there is a model m already'):
        add_model(engine, ready, 'm', kit.Fake())
    engine.submit(kit.request(1, 'robot_0'))
    assert isinstance(outcomes.of(1), ActionChunk)


def test_what_a_model_accepted_ends_before_it_goes(kit, serve) -> None:
    script = kit.Script('vlm', 'adit')
    leaving = kit.Fake(script)
    engine, ready, outcomes = serve({'m': kit.Fake(), 'n': leaving}, {'a': 'n', 'b': 'n'})
    requests = [kit.request(1, 'a', 'n'), kit.request(2, 'b', 'n')]
    engine.submit(requests[0])
    script.wait('vlm', 1)
    engine.submit(requests[1])
    engine.assign(2, {})
    assert not remove_model(engine, ready, 'n', kit.GRACE), 'it waits for both stages'
    removing = kit.begin(remove_model, engine, ready, 'n', kit.TIMEOUT)
    assert kit.waits(removing)
    script.free()
    assert removing.result(kit.TIMEOUT)
    outcomes.wait(2)
    for request in requests:
        np.testing.assert_allclose(outcomes.of(request.number).actions,
                                   leaving.expected(request), rtol=1e-5)
    engine.submit(kit.request(3, 'a', 'n'))
    assert outcomes.ends()[-1] == (3, DropReason.FAILED)


def test_engine_that_stops_lets_nobody_wait(kit, serve) -> None:
    script = kit.Script('vlm')
    engine, ready, _ = serve({'m': kit.Fake(script)})
    engine.submit(kit.request(1, 'robot_0'))
    script.wait('vlm', 1)
    adding = kit.begin(add_model, engine, ready, 'n', kit.Fake())
    stopping = kit.begin(engine.stop)
    assert kit.waits(adding)
    script.free()
    stopping.result(kit.TIMEOUT)
    adding.result(kit.TIMEOUT)  # It was tried to its end.
    with pytest.raises(RuntimeError, match='the engine has stopped'):
        add_model(engine, ready, 'o', kit.Fake())
    assert 'o' not in ready.models


def tensors() -> int:
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def test_loading_again_and_again_takes_no_memory(kit, serve) -> None:
    """No collection of garbage is needed for it, as that would stop every thread."""
    engine, ready, outcomes = serve({'m': registry.load(CONFIG, 'cpu')})
    counts = []
    gc.collect()
    gc.disable()
    try:
        for epoch in range(2, 22):
            model = registry.load(CONFIG, 'cpu')
            seen = weakref.ref(model.network)
            add_model(engine, ready, 'n', model)
            engine.assign(epoch, {'a': 'n'})
            engine.submit(kit.request(epoch, 'a', 'n'))
            assert isinstance(outcomes.of(epoch), ActionChunk)
            engine.assign(epoch, {})
            assert remove_model(engine, ready, 'n', kit.TIMEOUT)
            del model
            # A stage's thread lets go a little later.
            until(lambda seen=seen: seen() is None)
            outcomes.all.clear()
            counts.append(tensors())
    finally:
        gc.enable()
    assert counts[-1] == counts[0]
    assert not [loads for loads in engine._times._least
                if 'n' in [load.model for load in loads if load]]


def test_device_that_cannot_prepare_a_model_leaves_the_engine_alone(kit, serve) -> None:
    class Full(CpuDevice):
        def prepare(self, models, max_batch, beside):
            ready = super().prepare(models, max_batch, beside)
            ready.add = lambda name, model: 1 // 0
            return ready
    fake = kit.Fake()
    engine, ready, outcomes = serve({'m': fake}, device=Full())
    with pytest.raises(ZeroDivisionError):
        add_model(engine, ready, 'n', kit.Fake())
    request = kit.request(1, 'robot_0')
    engine.submit(request)
    assert isinstance(outcomes.of(1), ActionChunk) and list(ready.models) == ['m']


