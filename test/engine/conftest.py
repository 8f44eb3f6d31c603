# SPDX-License-Identifier: Apache-2.0
"""Models whose answers and order are known, and what it takes to watch an engine run them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from math import inf
from threading import Condition, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robion_ros.config import CameraConfig, ModelConfig, ServerConfig
from robion_ros.core import ActionChunk, DropReason, Observation, Outcome, Request
from robion_ros.engine.batch import Batch, make_ticket
from robion_ros.engine.device import open_device, Timed
from robion_ros.engine.engine import Engine, make_engine
from robion_ros.models.protocol import Model, ModelSpec, Tensors
from robion_ros.models.registry import load

TIMEOUT = 20.0
"""A wait that takes so long, s, is a deadlock."""

GRACE = 0.1
"""What must not happen is given so long to happen, s."""

Hook = Callable[[str, tuple[int, ...]], None]


class Fake:
    """
    A model whose chunk is a known function of image, state, prompt and seed.

    The state's first value is the request's number; hook hears the numbers of every call.
    """

    spec = ModelSpec('fake', 1, 2, 3, 4, 0.05)

    def __init__(self, hook: Hook = lambda stage, numbers: None, gain: float = 1.0) -> None:
        self.hook = hook
        self.gain = gain

    def preprocess(self, observation: Observation) -> Tensors:
        self.hook('preprocess', (int(observation.state[0]),))
        return {'image': torch.tensor(float(observation.images[0].mean())),
                'prompt': torch.tensor(float(len(observation.prompt))),
                'state': torch.from_numpy(observation.state)}

    def vlm(self, inputs: Tensors) -> Tensors:
        self.hook('vlm', numbers_of(inputs))
        return {'goal': self.gain * inputs['image'] + inputs['prompt'], 'state': inputs['state']}

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        self.hook('adit', numbers_of(context))
        goal = (context['goal'] + context['state'][:, 1])[:, None, None]
        for _ in range(3):
            noise = noise - 0.5 * (noise - goal)
        return noise

    def noise(self, seeds: Sequence[int]) -> torch.Tensor:
        return torch.stack([torch.randn((3, 4), generator=torch.Generator().manual_seed(seed))
                            for seed in seeds])

    def postprocess(self, actions: torch.Tensor, observation: Observation) -> np.ndarray:
        self.hook('postprocess', (int(observation.state[0]),))
        return actions.numpy() * np.float32(2)

    def expected(self, request: Request) -> np.ndarray:
        """Work the chunk of a request out in another way."""
        seen = request.observation
        goal = self.gain * seen.images[0].mean() + len(seen.prompt) + seen.state[1]
        return 2 * (goal + (self.noise([request.seed])[0].numpy() - goal) / 8)


def numbers_of(tensors: Tensors) -> tuple[int, ...]:
    return tuple(int(number) for number in tensors['state'][:, 0])


class Script:
    """A hook that writes down every stage's start and end and holds some until let go."""

    def __init__(self, *held: str) -> None:
        self.log: list[tuple[str, str, tuple[int, ...]]] = []
        self._held = set(held)
        self._let: set[tuple[str, tuple[int, ...]]] = set()
        self._changed = Condition()

    def __call__(self, stage: str, numbers: tuple[int, ...]) -> None:
        if not any(numbers):
            return  # The engine warms up.
        with self._changed:
            self._write('start', stage, numbers)
            assert self._changed.wait_for(
                lambda: stage not in self._held or (stage, numbers) in self._let, TIMEOUT)
            self._write('end', stage, numbers)

    def _write(self, what: str, stage: str, numbers: tuple[int, ...]) -> None:
        self.log.append((what, stage, numbers))
        self._changed.notify_all()

    def starts(self, stage: str, *numbers: int, within: float = GRACE) -> bool:
        return self._comes(('start', stage, numbers), within)

    def wait(self, stage: str, *numbers: int) -> None:
        assert self._comes(('start', stage, numbers), TIMEOUT), f'no {stage} {numbers}'

    def wait_end(self, stage: str, *numbers: int) -> None:
        assert self._comes(('end', stage, numbers), TIMEOUT), f'{stage} {numbers} does not end'

    def _comes(self, event: tuple[str, str, tuple[int, ...]], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: event in self.log, timeout)

    def let(self, stage: str, *numbers: int) -> None:
        with self._changed:
            self._let.add((stage, numbers))
            self._changed.notify_all()

    def free(self) -> None:
        with self._changed:
            self._held.clear()
            self._changed.notify_all()

    def batches(self, stage: str = 'vlm') -> list[tuple[int, ...]]:
        """Return the numbers of every batch in the order the stage ran them."""
        return [numbers for what, name, numbers in self.log if (what, name) == ('start', stage)]


class Outcomes:
    """Takes an engine's outcomes in the order they are called out."""

    def __init__(self, hook: Callable[[Outcome], None] = lambda outcome: None) -> None:
        self.all: list[Outcome] = []
        self._hook = hook
        self._changed = Condition()

    def __call__(self, outcome: Outcome) -> None:
        self._hook(outcome)
        with self._changed:
            self.all.append(outcome)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Outcome]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, TIMEOUT), self.ends()
            return list(self.all)

    def of(self, number: int) -> Outcome:
        """Wait for the outcome of a request."""
        def found() -> list[Outcome]:
            return [outcome for outcome in self.all if outcome.request.number == number]
        with self._changed:
            assert self._changed.wait_for(found, TIMEOUT), f'no outcome of {number}'
            return found()[0]

    def ends(self) -> list[tuple[int, DropReason | None]]:
        """Return numbers and how they ended, None for a chunk, in order."""
        return [(outcome.request.number,
                 None if isinstance(outcome, ActionChunk) else outcome.reason)
                for outcome in self.all]

    def count(self) -> Counter[tuple[str, int]]:
        return Counter((outcome.request.robot, outcome.request.number) for outcome in self.all)


def request(number: int, robot: str = 'a', model: str = 'm', deadline: float = inf,
            prompt: str = 'go') -> Request:
    image = np.full((2, 2, 3), number % 256, np.uint8)
    observation = Observation((image,), np.array([number, 0.25], np.float32), prompt, number)
    return Request(robot, number, model, observation, 0.0, deadline)


def batch_of(model: Model, *numbers: int) -> Batch:
    return Batch('m', tuple(make_ticket(model, request(number, f'robot_{number}'), 0.0)
                            for number in numbers), 0.0)


def begin(call: Callable[..., Any], *args: Any) -> 'Future[Any]':
    """Call in a thread of its own, so that a test can see it wait."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(error)
    Thread(target=run, daemon=True).start()
    return future


def waits(future: 'Future[Any]') -> bool:
    return not wait([future], GRACE).done


class Ledger:
    """A device without threads that writes down what is launched, awaited and closed."""

    VLM, ADIT = 0.25, 0.5
    """What stages take, s."""

    def __init__(self, lead: float = 0.0) -> None:
        self.lead = lead
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self.ended: set[str] = set()
        self.end = self.ended.add

    def stage(self, name: str) -> 'LedgerStage':
        return LedgerStage(name, self)

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines



class LedgerStage:
    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name, self.ledger = name, ledger

    def launch(self, run, after=()) -> 'LedgerPending':
        self.ledger.counts[self.name] += 1
        pending = LedgerPending(f'{self.name} {self.ledger.counts[self.name]}', self.ledger, run)
        behind = f' after {", ".join(other.name for other in after)}' if after else ''
        self.ledger.lines.append(f'launch {pending.name}{behind}')
        return pending

    def close(self) -> None:
        self.ledger.lines.append(f'close {self.name}')


class LedgerPending:
    """What a GPU gives: a value that is there for others at once, and an end that comes later."""

    def __init__(self, name: str, ledger: Ledger, run) -> None:
        self.name, self.ledger, self.error = name, ledger, None
        try:
            self.value = run()
        except Exception as error:
            self.error = error

    def done(self) -> bool:
        return self.name in self.ledger.ended

    def wait(self) -> None:
        if not self.done():
            self.ledger.lines.append(f'await {self.name}')
            self.ledger.ended.add(self.name)

    def handed(self):
        if self.error:
            raise self.error
        return self.value

    def result(self) -> Timed:
        self.wait()
        return Timed(self.handed(), self.since(self))

    def since(self, other) -> float:
        self.handed()
        return Ledger.ADIT if self.name.startswith('adit') else Ledger.VLM


@pytest.fixture(scope='session')
def kit() -> SimpleNamespace:
    """Return the parts above, which test modules cannot import."""
    return SimpleNamespace(Ledger=Ledger, Fake=Fake, Script=Script, Outcomes=Outcomes,
                           request=request, batch_of=batch_of, begin=begin, waits=waits,
                           TIMEOUT=TIMEOUT, GRACE=GRACE)


@pytest.fixture(scope='session')
def tiny() -> Model:
    """Return the smallest real model, one camera and two joints."""
    config = ModelConfig('tiny', {'wrist': CameraConfig()}, ('x', 'y'), 2.0, 1.0, 1, seed=3)
    return load(config, 'cpu')


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[Engine, Outcomes]]]:
    """Start engines and stop them after the test, whatever their models wait for."""
    engines: list[tuple[Engine, dict[str, Any]]] = []

    def start(models: dict[str, Any], robots: dict[str, str], outcomes: Outcomes | None = None,
              **settings: Any) -> tuple[Engine, Outcomes]:
        outcomes = outcomes or Outcomes()
        server = ServerConfig(tuple(models), **settings)
        engine = make_engine(models, open_device(server.device), server, outcomes)
        engines.append((engine, models))
        engine.assign(1, robots)
        return engine, outcomes
    yield start
    for engine, models in engines:
        for model in models.values():
            if isinstance(getattr(model, 'hook', None), Script):
                model.hook.free()
        begin(engine.stop).result(TIMEOUT)
