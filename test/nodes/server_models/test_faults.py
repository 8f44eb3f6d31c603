# SPDX-License-Identifier: Apache-2.0
"""What goes wrong as models come and go ends no server, and changes nothing."""

from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.models import registry
from robion_ros.msg import ServerStatus
from robion_ros.nodes import loading, qos
from robion_ros.srv import LoadModel

from .calls import begin, describing, held, LOAD, load, Make, traffic, UNLOAD, unload

pytestmark = pytest.mark.ros


@pytest.fixture
def describe(write_factory: Make) -> Make:
    """Write a factory file with more models than its servers name."""
    return describing(write_factory)


def save_tiny(folder: Path) -> None:
    cameras = {'front': CameraConfig(), 'wrist': CameraConfig()}
    registry.load(ModelConfig('tiny', cameras, ('a', 'b'), 1.0, 1.0, 1), 'cpu').save(folder)


def test_what_cannot_be_loaded_is_said_and_changes_nothing(
        world: Any, robot: Make, describe: Make, tmp_path: Path) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    for name in ('whole', 'broken', 'cut'):
        save_tiny(tmp_path / name)
    (tmp_path / 'cut' / 'model.safetensors').write_bytes(
        (tmp_path / 'cut' / 'model.safetensors').read_bytes()[:-1000])
    weights = tmp_path / 'broken' / 'model.safetensors'
    data = bytearray(weights.read_bytes())
    data[-4:] = b'\x00\x00\xc0\x7f'  # not a number
    weights.write_bytes(bytes(data))
    tiny = '{<<: *arm, architecture: tiny, checkpoint: '
    describe(*(f'  {name}: {tiny}{name}}}' for name in ('whole', 'broken', 'cut', 'nowhere')),
             f'  many: {tiny}whole, joints: [a, b, c]}}')
    with traffic(world, arm):
        for model, code, text in (
                ('lorry', LOAD.UNKNOWN_MODEL, "describes no model 'lorry'"),
                ('wole', LOAD.UNKNOWN_MODEL, "did you mean 'whole'?"),
                ('arm', LOAD.ALREADY_HELD, 'server_0 holds arm already'),
                ('nowhere', LOAD.NOT_LOADED, 'models.nowhere: '),
                ('cut', LOAD.NOT_LOADED, 'models.cut: '),
                ('broken', LOAD.NOT_LOADED, 'has values that are not finite'),
                ('many', LOAD.NOT_LOADED, 'the factory file names 3')):
            answer = load(world, model)
            assert (answer.success, answer.error_code) == (False, code), answer.message
            assert text in answer.message
            assert list(answer.models) == ['arm', 'crane']
            world.until(lambda: held(world) == ['arm', 'crane'])
        assert unload(world, 'lorry').error_code == UNLOAD.NOT_HELD
        world.config.write_text('models: {}')
        answer = load(world, 'whole')
        assert answer.error_code == LOAD.BAD_FILE and 'lacks servers' in answer.message
        describe(f'  whole: {tiny}whole}}')
        answer = load(world, 'whole')
        assert answer.success and answer.weights > 100_000, answer.message


def test_models_go_when_the_server_is_cleaned_up_while_it_loads(
        world: Any, describe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world.server()
    describe('  one: {<<: *arm, prompt: one}')
    begun, load_it = Event(), loading.load

    def endlessly(config: Any, device: str, progress: Any) -> Any:
        while config.prompt == 'one':
            begun.set()
            progress(0.5, 1.0)
        return load_it(config, device, progress)
    monkeypatch.setattr(loading, 'load', endlessly)
    call = begin(world, LoadModel, 'one')
    world.until(begun.is_set)
    assert world.change('deactivate') and world.change('cleanup')
    world.until(call.done)
    assert call.result().error_code == LOAD.NOT_CONFIGURED
    assert load(world, 'one').error_code == LOAD.NOT_CONFIGURED
    assert world.change('configure') and world.change('activate')
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.ACTIVE)
    world.until(lambda: held(world) == ['arm', 'crane'])


def test_what_a_model_raises_does_not_end_the_server(
        world: Any, robot: Make, describe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    describe('  one: {<<: *arm, prompt: one}')

    def leave(*arguments: Any) -> Any:
        raise SystemExit('no')
    monkeypatch.setattr(loading, 'load', leave)
    with traffic(world, arm):
        answer = load(world, 'one')
        assert answer.error_code == LOAD.NOT_LOADED
        assert answer.message == 'models.one: SystemExit: no'
    assert world.change('deactivate') and world.change('cleanup')
    assert not world.change('configure') and world.state() == 'unconfigured'


def test_a_model_that_ends_the_process_leaves_no_trace(
        world: Any, robot: Make, describe: Make, fakes: Any,
        monkeypatch: pytest.MonkeyPatch) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    describe('  one: {<<: *arm, prompt: one}')
    load_it = loading.load

    def leave(*arguments: Any) -> Any:
        raise SystemExit('no')
    for stage in ('preprocess', 'vlm', 'adit', 'noise', 'postprocess'):
        def broken(*arguments: Any, stage: str = stage) -> Any:
            model = load_it(*arguments)
            setattr(model, stage, leave)
            return model
        monkeypatch.setattr(loading, 'load', broken)
        with traffic(world, arm):
            answer = load(world, 'one')
            assert answer.error_code == LOAD.NOT_LOADED, (stage, answer.message)
            assert 'SystemExit: no' in answer.message
    monkeypatch.setattr(loading, 'load', load_it)
    assert load(world, 'one').success


def test_checkpoints_of_what_is_held_may_be_gone(world: Any, describe: Make,
                                                 tmp_path: Path) -> None:
    world.server()
    for name in ('old', 'new'):
        save_tiny(tmp_path / name)
    describe(*(f'  {name}: {{<<: *arm, architecture: tiny, checkpoint: {name}}}'
               for name in ('old', 'new')))
    assert load(world, 'old').success
    (tmp_path / 'old').rename(tmp_path / 'away')
    answer = load(world, 'new')
    assert answer.success, answer.message
    assert unload(world, 'old').success
    assert 'models.old: checkpoint' in load(world, 'old').message


def test_every_one_of_many_calls_is_answered(world: Any, describe: Make) -> None:
    world.server()
    describe('  one: {<<: *arm, prompt: one}')
    # Each hears the answers to all, and a client keeps ten of them unless told otherwise.
    clients = [world.node.create_client(LoadModel, 'server_0/load_model',
                                        qos_profile=qos.SERVICE_QOS) for _ in range(40)]
    for client in clients:
        world.until(client.service_is_ready)
    sleep(1.0)  # Until the server knows all of them, which clients cannot ask.
    calls = [client.call_async(LoadModel.Request(model='one')) for client in clients]
    world.until(lambda: all(call.done() for call in calls))
    assert sum(call.result().success for call in calls) == 1
