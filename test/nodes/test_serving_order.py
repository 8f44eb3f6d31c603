# SPDX-License-Identifier: Apache-2.0
"""The order of a robot's requests and chunks while others run, over real DDS."""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.ros

Make = Callable[..., Any]


def test_a_queued_request_does_not_run_under_the_old_prompt(world: Any, robot: Make,
                                                            fakes: Any) -> None:
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    model = fakes['pick'][0]
    model.gate.clear()
    other.observe()  # It runs; what comes now has to wait.
    world.until(lambda: world.robot_status('s').requests > world.robot_status('s').answered)
    arm.observe()
    world.until(lambda: world.statuses['server_0'].waiting == 1)
    arm.say('stack')
    world.until(lambda: world.robot_status().cancelled == 1)
    model.prompts.clear()
    arm.observe()
    world.until(lambda: world.statuses['server_0'].waiting == 1)
    model.gate.set()
    world.until(lambda: arm.chunks and other.chunks)
    assert model.prompts == ['pick', 'stack']
    assert [chunk.prompt for chunk in arm.chunks] == ['stack']


def test_a_newer_observation_replaces_a_waiting_one(world: Any, robot: Make, fakes: Any) -> None:
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    before = world.robot_status()
    fakes['pick'][0].gate.clear()
    other.observe()
    world.until(lambda: world.robot_status('s').requests > world.robot_status('s').answered)
    for count in range(1, 5):
        arm.observe(count)
        world.until(lambda count=count: world.robot_status().requests == before.requests + count)
    fakes['pick'][0].gate.set()
    world.until(lambda: arm.chunks)
    world.until(world.ended)
    assert [chunk.observation_stamp.sec for chunk in arm.chunks] == [4]
    assert world.robot_status().superseded == before.superseded + 3


def test_a_request_of_the_model_before_is_answered_first(world: Any, robot: Make, fakes: Any,
                                                         write_factory: Make,
                                                         kit: SimpleNamespace) -> None:
    """Though the model that the robot has now has the shorter deadline."""
    write_factory('fake', ('prompt: lift', 'prompt: lift, slo: 0.5'))
    world.server()
    arm, other = robot('r'), robot('s')
    world.assign(1, 'r', 's')
    world.ready(arm, other)
    before = world.robot_status().answered
    fakes['pick'][0].gate.clear()
    other.observe()
    world.until(lambda: world.robot_status('s').requests > world.robot_status('s').answered)
    arm.observe(1)
    world.until(lambda: world.statuses['server_0'].waiting == 1)
    world.assign(2, kit.place('r', 'crane'), 's')
    arm.observe(2)
    world.until(lambda: world.statuses['server_0'].waiting == 2)
    fakes['pick'][0].gate.set()
    world.until(world.ended)
    # A server that answers the newer one first counts the older one as superseded.
    world.until(lambda: world.robot_status().answered == before + 2)
    # The chunks come so close that a robot may get the last one alone.
    world.until(lambda: arm.chunks and arm.chunks[-1].model == 'crane')
    assert [chunk.observation_stamp.sec for chunk in arm.chunks] in ([1, 2], [2])


def test_request_numbers_grow_from_model_to_model(world: Any, robot: Make,
                                                  kit: SimpleNamespace) -> None:
    world.server()
    arm = robot()
    world.assign(1, 'r')
    world.ready(arm)
    for model in ('crane', 'arm', 'crane'):
        count = len(arm.chunks)
        arm.observe()
        world.until(lambda count=count: len(arm.chunks) > count)
        epoch = world.statuses['server_0'].epoch + 1
        assert world.assign(epoch, kit.place('r', model)).success
        world.until(lambda model=model: world.robot_status().model == model)
    arm.observe()
    world.until(lambda: len(arm.chunks) == 4)
    assert [chunk.model for chunk in arm.chunks] == ['arm', 'crane', 'arm', 'crane']
    assert [chunk.prompt for chunk in arm.chunks] == ['pick', 'lift', 'pick', 'lift']
    assert all(one.request < two.request for one, two in pairwise(arm.chunks))
