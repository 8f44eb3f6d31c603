# SPDX-License-Identifier: Apache-2.0
"""Locksteps launched before the last has ended, as on a GPU: nothing is lost, mixed up or lent."""

from concurrent.futures import ThreadPoolExecutor
from math import inf
from random import Random
from threading import Event, local
from time import monotonic, perf_counter, sleep

import numpy as np
import pytest
import torch

from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk, DropReason
from robion_ros.engine.device import Timed
from robion_ros.engine.engine import Engine
from robion_ros.engine.packing import Blocks, lay_out
from robion_ros.engine.pipelines import PIPELINES

ROBOTS = {f'robot_{index}': 'mn'[index % 2] for index in range(8)}
REQUESTS = 60
"""Of each of three threads."""


class Ahead:
    """A device that hands values over at once and takes its time to end, each stage in order."""

    def __init__(self, lead: float, random: Random) -> None:
        self.lead, self.random = lead, random
        self.read = local()
        """Blocks that the function of a launch copies from, and what they hold."""
        self.overwritten = 0

    def stage(self, name: str) -> 'AheadStage':
        return AheadStage(self)


class AheadStage:
    def __init__(self, device: Ahead) -> None:
        self.device, self.thread = device, ThreadPoolExecutor(1)

    def launch(self, run, after=()) -> 'AheadPending':
        self.device.read.blocks = []
        pending = AheadPending(run)
        blocks, time = self.device.read.blocks, self.device.random.choice((0, 0.001, 0.004))

        def work() -> None:
            for other in after:
                other.wait()
            pending.start = perf_counter()
            sleep(time)
            self.device.overwritten += sum(not torch.equal(*pair) for pair in blocks)
            pending.end = perf_counter()
            pending.ended.set()
        self.thread.submit(work)
        return pending

    def close(self) -> None:
        self.thread.shutdown()


class AheadPending:
    def __init__(self, run) -> None:
        self.ended, self.error = Event(), None
        try:
            self.value = run()
        except Exception as error:
            self.error = error

    def done(self) -> bool:
        return self.ended.is_set()

    def wait(self) -> None:
        self.ended.wait()

    def handed(self):
        if self.error:
            raise self.error
        return self.value

    def result(self) -> Timed:
        self.wait()
        return Timed(self.handed(), self.end - self.start)

    def since(self, other) -> float:
        return self.end - other.start


class Packed:
    """A model that takes requests in few lent blocks, which are read until a stage ends."""

    def __init__(self, model, device: Ahead) -> None:
        self._model, self._device = model, device
        self.spec, self.preprocess = model.spec, model.preprocess
        self.noise, self.postprocess = model.noise, model.postprocess
        self._blocks: Blocks | None = None

    def pack(self, inputs, noise):
        tensors = {**inputs, 'noise': noise}
        if self._blocks is None:  # When the engine warms up.
            self._blocks = Blocks(lay_out(tensors), 6, pinned=False)
        return self._blocks.pack(tensors)

    def vlm_beside(self, blocks, beside):
        self._device.read.blocks += [(block.memory, block.memory.clone()) for block in blocks]
        rows = [self._blocks.layout.views(block.memory) for block in blocks]
        inputs = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        noise = inputs.pop('noise')
        return self._model.vlm(inputs), noise

    def adit_beside(self, context, noise, beside):
        return self._model.adit(context, noise)


@pytest.mark.parametrize('lead', [0.0015, 1.0])
@pytest.mark.parametrize('kind', ['lockstep', 'monolithic'])
@pytest.mark.parametrize('late', ['yield', 'shed', 'serve'])
def test_every_request_ends_once_and_no_memory_is_lent_twice(kit, lead, kind, late) -> None:
    failing = Random(2)

    def trouble(stage: str, numbers: tuple[int, ...]) -> None:
        if any(numbers) and failing.random() < 0.04:
            raise RuntimeError(f'{stage} fails')
    device = Ahead(lead, Random(1))
    fakes = {'m': kit.Fake(trouble), 'n': kit.Fake(trouble, gain=5.0)}
    models = {'m': Packed(fakes['m'], device), 'n': fakes['n']}
    outcomes, submitted = kit.Outcomes(), []
    engine = Engine(models, PIPELINES[kind](models, device),
                    ServerConfig(('m', 'n'), engine=kind, late=late, max_batch=4), outcomes)
    engine.assign(1, ROBOTS)

    def flood(thread: int) -> None:
        random, robots = Random(thread), sorted(ROBOTS)[thread::3]
        for number in range(1, REQUESTS + 1):
            robot = random.choice(robots)
            request = kit.request(number, robot, ROBOTS[robot], random.choice(
                (inf, monotonic() + random.uniform(-0.001, 0.03))))
            submitted.append(request)
            engine.submit(request)
            sleep(random.choice((0, 0.001, 0.004)))
            if random.random() < 0.1:
                engine.cancel(random.choice(robots), 'at random')
    for thread in [kit.begin(flood, index) for index in range(3)]:
        thread.result(kit.TIMEOUT)
    assert engine.drain(kit.TIMEOUT)
    kit.begin(engine.stop).result(kit.TIMEOUT)
    assert outcomes.count() == {(request.robot, request.number): 1 for request in submitted}
    assert device.overwritten == 0
    last = dict.fromkeys(ROBOTS, 0)
    for outcome in outcomes.all:
        if isinstance(outcome, ActionChunk):
            np.testing.assert_allclose(
                outcome.actions, fakes[outcome.request.model].expected(outcome.request),
                rtol=1e-4, atol=1e-4)
            assert outcome.request.number > last[outcome.request.robot]
            last[outcome.request.robot] = outcome.request.number
        elif outcome.reason is DropReason.FAILED:
            assert ' fails' in outcome.detail
    assert any(last.values())
