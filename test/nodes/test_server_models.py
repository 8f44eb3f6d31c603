# SPDX-License-Identifier: Apache-2.0
"""Models that are loaded and let go while a server serves, over real services."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import gc
from pathlib import Path
from threading import Event, Thread
from typing import Any
import weakref

import pytest

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.models import registry
from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes import loading
from robion_ros.srv import AssignRobots, LoadModel, UnloadModel

pytestmark = pytest.mark.ros

Make = Callable[..., Any]
LOAD, UNLOAD = LoadModel.Response, UnloadModel.Response
CRANE = '  crane: {<<: *arm, prompt: lift}'


@pytest.fixture
def describe(write_factory: Make) -> Make:
    """Write a factory file with more models than its servers name."""
    def describe(*lines: str, architecture: str = 'fake') -> Path:
        return write_factory(architecture, (CRANE, '\n'.join([CRANE, *lines])))
    return describe


def load(world: Any, model: str) -> LoadModel.Response:
    return world.call(LoadModel, 'server_0/load_model', LoadModel.Request(model=model))


def unload(world: Any, model: str) -> UnloadModel.Response:
    return world.call(UnloadModel, 'server_0/unload_model', UnloadModel.Request(model=model))


def begin(world: Any, kind: Any, model: str) -> Any:
    """Call a service and do not wait."""
    client = world.node.create_client(kind, {LoadModel: 'server_0/load_model'}.get(
        kind, 'server_0/unload_model'))
    world.until(client.service_is_ready)
    return client.call_async(kind.Request(model=model))


def held(world: Any) -> list[str]:
    return list(world.statuses['server_0'].models)


@contextmanager
def traffic(world: Any, *robots: Any) -> Iterator[None]:
    """Let robots observe all the time; all that they asked must have been answered."""
    before = {robot.name: world.robot_status(robot.name) for robot in robots}
    over = Event()

    def run() -> None:
        while not over.wait(0.02):
            for robot in robots:
                robot.observe()
    thread = Thread(target=run)
    thread.start()
    try:
        yield
        for name, status in before.items():
            world.until(lambda name=name, status=status:
                        world.robot_status(name).answered > status.answered + 3)
    finally:
        over.set()
        thread.join()
    for robot in robots:
        world.until(lambda robot=robot: world.ended(robot.name))
        status = world.robot_status(robot.name)
        assert (status.failed, status.cancelled) == (0, before[robot.name].cancelled)
        numbers = [chunk.request for chunk in robot.chunks]
        assert numbers == sorted(set(numbers)), numbers


def test_model_comes_and_goes_while_robots_are_served(
        world: Any, robot: Make, describe: Make, kit: Any, fakes: Any) -> None:
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    describe('  loader: {<<: *arm, prompt: load, joint_trajectory: true}')
    with traffic(world, arm):
        answer = load(world, 'loader')
        assert answer.success, answer.message
        assert 'does not name it in servers.server_0.models' in answer.message
        assert list(answer.models) == ['arm', 'crane', 'loader'] == held(world)
        assert world.assign(2, 'r', kit.place('s', 'loader')).success
        other.observe()
        world.until(lambda: [chunk.model for chunk in other.chunks] == ['loader'])
        refused = unload(world, 'loader')
        assert (refused.error_code, list(refused.robots)) == (UNLOAD.IN_USE, ['s'])
        assert 'server_0 serves s with loader' in refused.message
        assert world.assign(3, 'r', kit.place('s', standby=True)).success
        gone = unload(world, 'loader')
        assert gone.success, gone.message
        assert list(gone.models) == ['arm', 'crane'] == held(world)
        late = world.assign(4, 'r', kit.place('s', 'loader'))
        assert late.error_code == AssignRobots.Response.UNKNOWN_MODEL
    # It was tried at both batch sizes, and asked once.
    assert fakes['load'][0].prompts == ['warm up'] * 3 + ['load']


def test_standby_is_a_use_too(world: Any, robot: Make, kit: Any) -> None:
    world.server()
    world.assign(1, kit.place('r', 'crane', standby=True))
    answer = unload(world, 'crane')
    assert (answer.error_code, list(answer.robots)) == (UNLOAD.IN_USE, ['r'])
    world.until(lambda: world.robot_status().model == 'crane')
    assert world.robot_status().state == RobotStatus.STANDBY


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
            assert list(answer.models) == ['arm', 'crane'] == held(world)
        assert unload(world, 'lorry').error_code == UNLOAD.NOT_HELD
        world.config.write_text('models: {}')
        answer = load(world, 'whole')
        assert answer.error_code == LOAD.BAD_FILE and 'lacks servers' in answer.message
        describe(f'  whole: {tiny}whole}}')
        answer = load(world, 'whole')
        assert answer.success and answer.weights > 100_000, answer.message


def test_one_change_at_a_time(world: Any, robot: Make, describe: Make,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    describe('  one: {<<: *arm, prompt: one}', '  two: {<<: *arm, prompt: two}')
    begun, go, load_it = Event(), Event(), loading.load

    def slowly(*arguments: Any) -> Any:
        begun.set()
        assert go.wait(20.0)
        return load_it(*arguments)
    monkeypatch.setattr(loading, 'load', slowly)
    first = begin(world, LoadModel, 'one')
    world.until(begun.is_set)
    with traffic(world, arm):
        busy = load(world, 'two'), load(world, 'one'), unload(world, 'crane')
        go.set()
        for answer in busy:
            assert (answer.success, answer.error_code) == (False, LOAD.BUSY)
            assert 'server_0 is loading one' in answer.message
    world.until(first.done)
    assert first.result().success
    assert load(world, 'two').success
    assert held(world) == ['arm', 'crane', 'one', 'two']


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
    assert held(world) == ['arm', 'crane']


def test_what_was_accepted_is_answered_before_a_model_goes(world: Any, robot: Make,
                                                           fakes: Any) -> None:
    world.server(drain_timeout=0.3)
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    fakes['pick'][0].gate.clear()
    arm.observe(7)
    world.until(lambda: not world.ended())
    world.assign(2)
    answer = unload(world, 'arm')
    assert (answer.success, answer.error_code) == (False, UNLOAD.STILL_RUNNING)
    assert held(world) == ['crane', 'arm']
    going = begin(world, UnloadModel, 'arm')
    fakes['pick'][0].gate.set()
    world.until(going.done)
    assert going.result().success, going.result().message
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].observation_stamp.sec == 7


def test_server_can_let_all_go_and_begin_anew(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    for model in ('arm', 'crane'):
        assert unload(world, model).success
    assert held(world) == []
    refused = world.assign(1, 'r')
    assert 'loaded here: none' in refused.message
    assert load(world, 'arm').success
    assert world.assign(2, 'r').success
    world.ready(arm)
    arm.observe()
    world.until(lambda: arm.chunks)


def test_trajectories_come_with_the_model_that_wants_them(world: Any, robot: Make, kit: Any,
                                                          write_factory: Make) -> None:
    write_factory('fake', ('joint_trajectory: true', 'joint_trajectory: false'))
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    write_factory('fake', ('joint_trajectory: true', 'joint_trajectory: false'), (
        CRANE, f'{CRANE}\n  one: {{<<: *arm, joint_trajectory: true}}'))
    assert load(world, 'one').success
    assert world.assign(2, kit.place('r', 'one')).success
    arm.trajectories.clear()
    world.ready(arm)

    def asked() -> bool:
        arm.observe()
        return bool(arm.trajectories)
    world.until(asked)


def test_again_and_again_takes_no_memory(world: Any, robot: Make, describe: Make,
                                         fakes: Any) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    describe('  one: {<<: *arm, prompt: one}')
    seen = []
    with traffic(world, arm):
        for _ in range(20):
            assert load(world, 'one').success
            seen.append(weakref.ref(fakes['one'].pop()))
            assert unload(world, 'one').success
    gc.collect()
    assert [ref() for ref in seen] == [None] * 20
