# SPDX-License-Identifier: Apache-2.0
"""What fails drops as little as can be and says what it was; the engine goes on."""

import threading

import numpy as np
import pytest

from robion_ros.config import ServerConfig
from robion_ros.core import DropReason
from robion_ros.engine.device import open_device
from robion_ros.engine.engine import make_engine
from robion_ros.engine.pipelines import PIPELINES
from robion_ros.engine.stats import EngineStats

from ..waiting import until

FLEET = {name: 'm' for name in 'abcdefgh'}
KINDS = sorted(PIPELINES)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize(('stage', 'failed'), [
    ('preprocess', {2}), ('vlm', {2, 3}), ('adit', {2, 3}), ('postprocess', {2}),
])
def test_failure_drops_as_little_as_can_be(kit, start, kind: str, stage: str, failed) -> None:
    script = kit.Script('vlm')

    def hook(at: str, numbers: tuple[int, ...]) -> None:
        script(at, numbers)
        if at == stage and 2 in numbers:
            raise ValueError('broken')
    engine, outcomes = start({'m': kit.Fake(hook)}, FLEET, engine=kind)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    for number, robot in enumerate('bcde', 2):
        engine.submit(kit.request(number, robot))
    script.free()
    outcomes.wait(5)
    engine.submit(kit.request(6, 'b'))
    outcomes.wait(6)
    assert sorted(outcomes.ends()) == [
        (number, DropReason.FAILED if number in failed else None) for number in range(1, 7)]
    for number in failed:
        detail = outcomes.of(number).detail
        assert detail.startswith('model m: ') and 'ValueError: broken' in detail
        assert stage.lower() in detail.lower()
    assert engine.alive


class Mute(Exception):
    """An error that fails again when it is asked what it is."""

    def __str__(self) -> str:
        raise AttributeError('never set')


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('stage', ['preprocess', 'vlm', 'adit', 'postprocess'])
@pytest.mark.parametrize(('error', 'said'), [
    (SystemExit(3), 'SystemExit: 3'), (Mute(), 'Mute: it cannot say what'),
    (OSError('no \udc80'), 'OSError: no ?')], ids=['exit', 'mute', 'not text'])
def test_whatever_a_model_raises_ends_its_request_alone(kit, start, kind: str, stage: str,
                                                        error: BaseException, said: str) -> None:
    def hook(at: str, numbers: tuple[int, ...]) -> None:
        if at == stage and 1 in numbers:
            raise error
    engine, outcomes = start({'m': kit.Fake(hook)}, FLEET, engine=kind)
    for number in (1, 2):
        engine.submit(kit.request(number))
        outcomes.wait(number)
    assert outcomes.ends() == [(1, DropReason.FAILED), (2, None)]
    assert said in outcomes.of(1).detail
    assert engine.alive


@pytest.mark.parametrize('shape', [(4, 3), (2, 4), (3, 5), (12,), (1, 3, 4), (0, 4), ()])
def test_actions_of_another_shape_than_said_are_no_answer(kit, start, monkeypatch, shape) -> None:
    model = kit.Fake()
    engine, outcomes = start({'m': model}, FLEET)
    monkeypatch.setattr(model, 'postprocess', lambda actions, seen: np.zeros(shape, np.float32))
    engine.submit(kit.request(1))
    assert outcomes.of(1).reason is DropReason.FAILED
    assert f'actions of shape {list(shape)}, must be [3, 4]' in outcomes.of(1).detail


def test_request_for_a_model_not_loaded_fails_by_name(kit, start) -> None:
    engine, outcomes = start({'m': kit.Fake()}, {'a': 'ghost'})
    engine.submit(kit.request(1, 'a', 'ghost'))
    assert outcomes.ends() == [(1, DropReason.FAILED)] and 'ghost' in outcomes.of(1).detail


@pytest.mark.parametrize(('stage', 'size', 'message'), [
    ('preprocess', 1, 'model n cannot preprocess: ValueError: broken'),
    ('vlm', 4, 'model n fails at batch 4: model n: VLM stage: ValueError: broken'),
    ('vlm', 1, 'model n fails at batch 1: model n: VLM stage: ValueError: broken'),
    ('adit', 2, 'model n fails at batch 2: model n: ADiT stage: ValueError: broken'),
    ('postprocess', 1, 'model n fails at batch 4: model n: postprocessing: ValueError: broken'),
])
@pytest.mark.parametrize('kind', KINDS)
def test_warm_up_names_model_and_batch(kit, kind: str, stage: str, size: int,
                                       message: str) -> None:
    def hook(at: str, numbers: tuple[int, ...]) -> None:
        if at == stage and len(numbers) == size:
            raise ValueError('broken')
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError) as error:
        make_engine({'m': kit.Fake(), 'n': kit.Fake(hook)}, open_device('cpu'),
                    ServerConfig(('m', 'n'), max_batch=4, engine=kind), kit.Outcomes())
    assert str(error.value) == message
    assert set(threading.enumerate()) <= before


def test_engine_warms_up_every_batch_size_largest_first(kit, start) -> None:
    seen = []
    model = kit.Fake(lambda stage, numbers: seen.append((stage, len(numbers))))
    engine, outcomes = start({'m': model}, FLEET, max_batch=8)
    assert [size for stage, size in seen if stage == 'vlm'] == [8, 4, 2, 1]
    assert [size for stage, size in seen if stage == 'adit'] == [8, 4, 2, 1]
    assert outcomes.all == [] and engine.stats() == EngineStats(0, 0, 0.0, 1)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_fault_of_the_listener_is_seen_and_nothing_hangs(kit, start) -> None:
    script = kit.Script('vlm')

    def hook(outcome) -> None:
        if outcome.request.number == 1:
            raise OSError('the network is gone')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, kit.Outcomes(hook), max_batch=1,
                             engine='monolithic')
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b'))
    assert engine.alive
    script.free()
    until(lambda: not engine.alive)
    engine.submit(kit.request(3, 'c'))
    assert outcomes.ends() == [(3, DropReason.CANCELLED)]
    assert not engine.drain(0.0)
    kit.begin(engine.stop).result(kit.TIMEOUT)
    assert outcomes.ends() == [(3, DropReason.CANCELLED), (2, DropReason.CANCELLED)]
