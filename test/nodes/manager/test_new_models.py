# SPDX-License-Identifier: Apache-2.0
"""Models that are written into the factory file, and loaded, after the manager has started."""

from typing import Any

import pytest

from robion_ros.msg import Population
from robion_ros.srv import Rebalance, RegisterRobot

pytestmark = pytest.mark.ros

CODES = Rebalance.Response


def describe(floor, *names: str) -> None:
    """Write models into the factory file that are like those that stand there."""
    text = floor.config.read_text()
    floor.config.write_text(text.replace('servers:\n', ''.join(
        f'  {name}: *arm\n' for name in names) + 'servers:\n'))


def register(floor, robot: str, model: str) -> Any:
    client = floor.operator.create_client(RegisterRobot, 'manager/register_robot')
    floor.until(client.service_is_ready)
    future = client.call_async(RegisterRobot.Request(robot=robot, model=model))
    floor.until(future.done, 'register_robot answers')
    return future.result()


def test_model_gets_robots_once_a_server_holds_it(served) -> None:
    populations = Population(model='pick_2', robots=['robot_1', 'robot_2'])
    unknown = served.rebalance(populations)
    assert unknown.error_code == CODES.BAD_POPULATION and "'pick_2'" in unknown.message
    describe(served, 'pick_2')
    nowhere = served.rebalance(populations)
    assert nowhere.error_code == CODES.NO_SERVER, nowhere.message
    served.servers['server_1'].models = ['pick', 'place', 'pick_2']
    served.until(lambda: 'pick_2' in served.manager._fleet.alive()['server_1'].models)
    answer = served.rebalance(populations)
    assert answer.success, answer.message
    assert {robot: place for robot, place in served.places.items() if place[0] == 'pick_2'} == {
        'robot_1': ('pick_2', 'server_1'), 'robot_2': ('pick_2', 'server_1')}
    assert len(served.places) == 5
    describe(served, 'pick_3')
    served.servers['server_0'].models = ['pick', 'place', 'pick_3']
    served.until(lambda: 'pick_3' in served.manager._fleet.alive()['server_0'].models)
    assert register(served, 'new', 'pick_3').server == 'server_0'


def test_broken_file_is_said_where_it_is_needed_alone(served) -> None:
    served.config.write_text('models: {}')
    answer = register(served, 'new', 'pick_2')
    assert answer.error_code == CODES.BAD_POPULATION and 'lacks servers' in answer.message
    assert register(served, 'new', 'pick').success
    assert served.rebalance(Population(model='place', count=1)).success


def test_robots_that_waited_for_a_model_are_served_when_it_is_loaded(floor) -> None:
    describe(floor, 'pick_2')
    floor.config.write_text(floor.config.read_text().replace(
        'robots:\n', 'robots:\n  pick_2: [waiting]\n'))
    for number in range(2):
        floor.add(f'server_{number}')
    floor.manage()
    floor.until(lambda: floor.settled(5))
    floor.until(lambda: 'no living server has model pick_2 loaded' in floor.complaint)
    before = floor.places
    floor.servers['server_0'].models = ['pick', 'place', 'pick_2']
    floor.until(lambda: floor.places.get('waiting') == ('pick_2', 'server_0'))
    floor.until(lambda: floor.settled(6))
    assert {robot: floor.places[robot][0] for robot in before} == {
        robot: model for robot, (model, _) in before.items()}
    floor.until(lambda: 'every robot is assigned' in floor.complaint)
