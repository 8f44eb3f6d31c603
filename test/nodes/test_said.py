# SPDX-License-Identifier: Apache-2.0
"""What servers say together."""

import pytest

from robion_ros.config import MAX_CAPACITY
from robion_ros.manager.handover import Place
from robion_ros.msg import RobotStatus, ServerStatus
from robion_ros.nodes.said import capacities, places, robot_models

pytestmark = pytest.mark.ros


def robot(name: str, **values: object) -> RobotStatus:
    return RobotStatus(robot=name, **{'model': 'a', 'state': RobotStatus.ACTIVE, **values})


@pytest.mark.parametrize(('said', 'where'), [
    ({'s': [robot('r1')], 't': [robot('r2', model='b')]},
     {'r1': Place('a', 's'), 'r2': Place('b', 't')}),
    ({'s': [robot('r1', state=RobotStatus.STANDBY)], 't': [robot('r1')]},
     {'r1': Place('a', 't')}),
    ({'s': [robot('r1', state=RobotStatus.LEAVING, model='')]}, {}),
    ({'s': [robot('r1', last_request=9)], 't': [robot('r1', last_request=8)]},
     {'r1': Place('a', 's')}),
    ({'s': [robot('r1', last_request=8)], 't': [robot('r1', last_request=9)]},
     {'r1': Place('a', 't')}),
], ids=['two', 'standby', 'leaving', 'cut off', 'cut off, other order'])
def test_places(said, where) -> None:
    assert places({name: ServerStatus(robots=robots) for name, robots in said.items()}) == where


STANDBY, LEAVING = RobotStatus.STANDBY, RobotStatus.LEAVING


@pytest.mark.parametrize(('said', 'models'), [
    ({'s': [robot('r1')], 't': [robot('r2', model='b')]}, {'r1': 'a', 'r2': 'b'}),
    ({'s': [robot('r1', last_request=1)],
      't': [robot('r1', model='b', state=STANDBY, last_request=9)]}, {'r1': 'a'}),
    ({'s': [robot('r1', state=LEAVING, last_request=9)],
      't': [robot('r1', model='b', state=STANDBY)]}, {'r1': 'b'}),
    ({'s': [robot('r1', last_request=8)], 't': [robot('r1', model='b', last_request=9)]},
     {'r1': 'b'}),
    ({'s': [robot('r1', state=LEAVING)]}, {}),
    ({}, {}),
], ids=['two', 'listened to and answered', 'listened to and let go', 'answered by two', 'let go',
        'nobody'])
def test_models_of_robots(said, models) -> None:
    statuses = {name: ServerStatus(robots=robots) for name, robots in said.items()}
    assert robot_models(statuses) == models


def test_capacities_are_those_that_servers_say_within_limits() -> None:
    said = {'s': ServerStatus(models=['a', 'b'], capacities=[4, 2**32 - 1]),
            't': ServerStatus(models=['a', 'b'], capacities=[0]), 'u': ServerStatus(models=['a'])}
    assert capacities(said) == {('s', 'a'): 4, ('s', 'b'): MAX_CAPACITY, ('t', 'a'): 0}
