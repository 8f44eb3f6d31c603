# SPDX-License-Identifier: Apache-2.0
"""The manager plans with capacities that servers say, where the factory file gives none."""

from collections import Counter

import pytest

from robion_ros.msg import Population

pytestmark = pytest.mark.ros

MEASURED = """
models:
  pick: &arm {architecture: tiny, cameras: [front], joints: [a], rate: 2.0, slo: 0.2}
  place: {<<: *arm, capacity: 4}
servers:
  server_0: {models: [pick, place]}
  server_1: {models: [pick, place]}
robots: {pick: 3}
"""


@pytest.mark.parametrize('floor', [MEASURED], indirect=True)
def test_capacities_that_the_file_does_not_give_are_those_that_servers_say(floor) -> None:
    # Of place the file says it: what servers say does not count.
    floor.add('server_0', capacities=[1, 90])
    floor.add('server_1', capacities=[2, 90])
    floor.manage()
    floor.until(lambda: floor.settled(3))
    assert Counter(server for _, server in floor.places.values()) == {'server_0': 1, 'server_1': 2}
    answer = floor.rebalance(Population(model='place', count=1))
    assert not answer.success and 'over by 1 robot of ' in answer.message
    assert floor.rebalance(Population(model='pick', count=0),
                           Population(model='place', count=4)).success
    assert not floor.rebalance(Population(model='place', count=9)).success


@pytest.mark.parametrize('floor', [MEASURED], indirect=True)
def test_server_that_sustains_not_even_one_robot_gets_none(floor) -> None:
    floor.add('server_0', capacities=[0, 0])
    floor.add('server_1', capacities=[2, 2])
    floor.manage()
    floor.until(lambda: 'over by 1 robot of pick' in floor.complaint)
    assert {server for _, server in floor.places.values()} == {'server_1'}
