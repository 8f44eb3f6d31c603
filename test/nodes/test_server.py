# SPDX-License-Identifier: Apache-2.0
"""The life of a server node, and what it says of itself."""

from collections.abc import Callable
import gc
from threading import Event, Thread
from time import sleep
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from rclpy.parameter import Parameter

from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes import loading, served_robot
from robion_ros.srv import AssignRobots

pytestmark = pytest.mark.ros

Make = Callable[..., Any]
CODES = AssignRobots.Response


def test_the_standard_services_lead_through_its_life_again_and_again(world: Any,
                                                                     robot: Make) -> None:
    world.server(autostart=False)
    arm = robot()
    for epoch in (1, 2):
        assert world.state() == 'unconfigured'
        assert world.change('configure')
        world.until(lambda: world.statuses['server_0'].state == ServerStatus.INACTIVE)
        assert list(world.statuses['server_0'].models) == ['arm', 'crane']
        assert world.assign(epoch, 'r').error_code == CODES.NOT_ACTIVE
        for again in (epoch, epoch + 10):
            assert world.change('activate')
            assert world.assign(again, 'r').success
            world.ready(arm)
            arm.observe()
            world.until(lambda: arm.chunks)
            assert world.change('deactivate')
            world.until(lambda: not world.statuses['server_0'].robots)
        assert world.change('cleanup')
        world.until(lambda: world.statuses['server_0'].state == ServerStatus.UNCONFIGURED)
        assert not world.statuses['server_0'].models
    assert world.change('shutdown')
    assert world.state() == 'finalized'


VALID = {'unconfigured': {'configure': 1, 'shutdown': 5},
         'inactive': {'activate': 3, 'cleanup': 2, 'shutdown': 6},
         'active': {'deactivate': 4, 'shutdown': 7}, 'finalized': {}}
EVERY = {1, 2, 3, 4, 5, 6, 7, 99, 'configure', 'activate', 'deactivate', 'cleanup', 'shutdown',
         'dance'}


@pytest.mark.parametrize('start', VALID)
def test_invalid_transitions_change_nothing(world: Any, start: str) -> None:
    world.server(autostart=start == 'active')
    for transition in {'inactive': ['configure'], 'finalized': ['shutdown']}.get(start, []):
        assert world.change(transition)
    for transition in EVERY - VALID[start].keys() - set(VALID[start].values()):
        assert not world.change(transition), transition
        assert world.state() == start


def test_counters_and_numbers_outlive_cleanup_and_absence(world: Any, robot: Make) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    arm.say('stack')
    world.until(lambda: world.robot_status().prompt == 'stack')
    arm.observe()
    world.until(lambda: arm.chunks)
    world.until(lambda: world.robot_status().last_request == arm.chunks[0].request)
    world.until(world.ended)
    before = world.robot_status()
    world.assign(2)
    world.until(lambda: not world.statuses['server_0'].robots)
    for transition in ('deactivate', 'cleanup', 'configure', 'activate'):
        assert world.change(transition)
    world.assign(1, 'r')
    world.until(lambda: world.robot_status().robot)
    after = world.robot_status()
    assert (after.last_request, after.prompt, after.prompt_stamp, after.watermark,
            after.answered, after.requests) == (
        before.last_request, 'stack', 1, before.watermark, before.answered, before.requests)


def test_cleanup_and_a_configure_that_fails_free_the_models(
        world: Any, fakes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    load, models = loading.load, []

    def load_three(*words: Any) -> Any:
        if len(models) == 3:
            raise ValueError('no memory left')
        model = load(*words)
        model.itself = model  # As compiled layers do.
        models.append(ref(model))
        fakes.clear()
        return model
    monkeypatch.setattr(loading, 'load', load_three)
    world.server(autostart=False)
    gc.disable()  # It would find them some time.
    try:
        assert world.change('configure') and gc.get_freeze_count()
        assert world.change('cleanup') and not gc.get_freeze_count()
        assert not world.change('configure')
        assert [model() for model in models] == [None] * 3
    finally:
        gc.enable()


def test_a_call_repeated_after_deactivation_is_not_taken_for_being_in_force(
        world: Any, robot: Make) -> None:
    world.server()
    assert world.assign(1, 'r').success
    world.change('deactivate')
    world.change('activate')
    assert world.assign(1, 'r').error_code == CODES.STALE_EPOCH
    assert world.assign(2, 'r').success


def test_deactivate_answers_what_was_accepted(world: Any, robot: Make, fakes: Any) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    world.hold(arm, fakes, 7)
    Thread(target=lambda: (sleep(0.3), fakes['pick'][0].gate.set())).start()
    assert world.change('deactivate')
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].observation_stamp.sec == 7


def test_deactivate_does_not_wait_for_ever(world: Any, robot: Make, fakes: Any) -> None:
    world.server(drain_timeout=0.2)
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    world.hold(arm, fakes)
    assert world.change('deactivate')
    assert world.robot_status().state == RobotStatus.LEAVING
    fakes['pick'][0].gate.set()
    world.until(lambda: arm.chunks)
    world.until(lambda: not world.statuses['server_0'].robots)


def test_a_camera_of_the_other_transport_is_said(world: Any, robot: Make, kit: SimpleNamespace,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_robot, 'SAY_AGAIN', 0.5)
    arm = robot()
    server = world.server()
    server.create_publisher(type(kit.image()), 't/wrist/image_raw', 1)
    world.assign(1, 'r', 't')
    world.until(lambda: arm.front.get_subscription_count())

    def message(name: str) -> str:
        status = world.diagnostics.get(f'robion: server_0: {name}')
        return status.message if status else ''
    world.until(lambda: 't/wrist/image_raw/compressed has no publisher, but t/wrist/image_raw '
                '(sensor_msgs/msg/Image) has: set the transport' in message('t'))
    assert 't/front/image_raw has no publisher' in message('t')
    world.until(lambda: 'r/front/image_raw: camera publisher found, no frames: image may be too '
                'large' in message('r'))
    stop = Event()

    def publish() -> None:
        while not stop.wait(0.05):
            arm.observe(front=kit.image(encoding='16UC1', step=16, data=bytes(128)))
    traffic = Thread(target=publish)
    traffic.start()
    world.until(lambda: message('r').startswith('front: ') and 'depth' in message('r'))
    stop.set()
    traffic.join()
    world.until(lambda: 'joint_states: no message for' in message('r'))


def test_configure_that_fails_leaves_it_unconfigured_and_says_why(
        world: Any, write_factory: Make, capfd: pytest.CaptureFixture[str]) -> None:
    write_factory('tiny', ('prompt: pick', 'prompt: pick\n    checkpoint: nowhere'))
    world.server()
    assert world.state() == 'unconfigured'
    assert 'nowhere does not exist' in capfd.readouterr().err
    name = 'robion: server_0'
    world.until(lambda: name in world.diagnostics)
    assert 'nowhere does not exist' in world.diagnostics[name].message
    assert not world.change('configure')
    assert world.assign(1, 'r').error_code == CODES.NOT_ACTIVE
    assert world.state() == 'unconfigured'


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_an_engine_that_dies_is_a_fault_of_the_node(world: Any, robot: Make,
                                                    kit: SimpleNamespace) -> None:
    server = world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    server._serving.engine._record = lambda ended: 1 // 0

    def died() -> Any:
        arm.observe()  # More than once: one whose pictures come too far apart asks for nothing.
        return world.faults
    assert kit.holds(died, kit.TIMEOUT, 0.05)
    assert 'the engine has stopped by a fault' in str(world.faults.pop())


def test_simulated_time_that_stands_still_stops_no_heart(world: Any, robot: Make) -> None:
    server = world.server()
    server.set_parameters([Parameter('use_sim_time', value=True)])
    world.statuses.clear()
    world.until(lambda: world.statuses)
    name = 'robion: server_0'
    world.until(lambda: name in world.diagnostics
                and 'nobody publishes /clock' in world.diagnostics[name].message)
    arm = robot()
    assert world.assign(1, 'r').success
    world.ready(arm)
    arm.observe()
    world.until(lambda: arm.chunks)
    assert arm.chunks[0].header.stamp.sec == 0


def test_the_manager_finds_it_by_the_servers_name(world: Any) -> None:
    world.watch('server_1')
    world.server('other_name', server='server_1')
    world.until(lambda: world.statuses['server_1'].state == ServerStatus.ACTIVE)
    assert world.assign(1, 'r', server='server_1').success
