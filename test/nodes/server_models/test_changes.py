# SPDX-License-Identifier: Apache-2.0
"""Models that are loaded and let go while a server serves, over real services."""

import gc
from threading import Event
from typing import Any
import weakref

import pytest

from robion_ros.msg import RobotStatus
from robion_ros.nodes import loading
from robion_ros.srv import AssignRobots, LoadModel, UnloadModel

from .calls import begin, CRANE, describing, held, LOAD, load, Make, traffic, UNLOAD, unload

pytestmark = pytest.mark.ros


@pytest.fixture
def describe(write_factory: Make) -> Make:
    """Write a factory file with more models than its servers name."""
    return describing(write_factory)


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
        assert list(answer.models) == ['arm', 'crane', 'loader']
        world.until(lambda: held(world) == ['arm', 'crane', 'loader'])
        assert world.assign(2, 'r', kit.place('s', 'loader')).success
        other.observe()
        world.until(lambda: [chunk.model for chunk in other.chunks] == ['loader'])
        refused = unload(world, 'loader')
        assert (refused.error_code, list(refused.robots)) == (UNLOAD.IN_USE, ['s'])
        assert 'server_0 serves s with loader' in refused.message
        assert world.assign(3, 'r', kit.place('s', standby=True)).success
        gone = unload(world, 'loader')
        assert gone.success, gone.message
        assert list(gone.models) == ['arm', 'crane']
        world.until(lambda: held(world) == ['arm', 'crane'])
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
    world.until(lambda: held(world) == ['arm', 'crane', 'one', 'two'])


def test_what_was_accepted_is_answered_before_a_model_goes(world: Any, robot: Make,
                                                           fakes: Any) -> None:
    world.server(drain_timeout=0.3)
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    world.hold(arm, fakes, 7)
    world.assign(2)
    answer = unload(world, 'arm')
    assert (answer.success, answer.error_code) == (False, UNLOAD.STILL_RUNNING)
    world.until(lambda: held(world) == ['crane', 'arm'])
    going = begin(world, UnloadModel, 'arm')
    fakes['pick'][0].gate.set()
    world.until(going.done)
    assert going.result().success, going.result().message
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].observation_stamp.sec == 7


def test_a_model_goes_while_the_server_is_out_of_service(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    assert world.change('deactivate')
    answer = unload(world, 'arm')
    assert answer.success, answer.message
    assert load(world, 'arm').success and world.change('activate')
    assert world.assign(2, 'r').success
    world.ready(arm)


def test_server_can_let_all_go_and_begin_anew(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    for model in ('arm', 'crane'):
        assert unload(world, model).success
    world.until(lambda: held(world) == [])
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
