# SPDX-License-Identifier: Apache-2.0
"""Which server answers which robot."""

import pytest

from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.fleet import Fleet


@pytest.fixture
def fleet(kit) -> Fleet:
    return Fleet(kit.make_factory(), kit.make_times(), Agenda(), lambda outcome: None)


def test_a_robot_is_where_it_was_given_last(fleet) -> None:
    one, other = fleet.life('server_0'), fleet.life('server_1')
    assert fleet.serving('a') is None
    fleet.assign(one, {'a': 'pick', 'b': 'pick'})
    fleet.assign(other, {'b': 'pick'})
    fleet.assign(one, {'a': 'pick'})
    assert (fleet.serving('a'), fleet.serving('b')) == (one, other)
    fleet.assign(one, {})
    assert fleet.serving('a') is None and fleet.serving('b') is other


def test_a_dead_server_serves_nobody_and_hears_nothing(fleet) -> None:
    server = fleet.life('server_0')
    fleet.assign(server, {'a': 'pick'})
    server.die(0.0)
    assert fleet.serving('a') is None
    fleet.assign(server, {'a': 'pick', 'b': 'pick'})
    assert server.robots == {'a': 'pick'} and fleet.serving('b') is None
    again = fleet.start('server_0')
    assert fleet.life('server_0') is again and fleet.serving('a') is None
    fleet.assign(again, {'a': 'pick'})
    assert fleet.serving('a') is again
    assert [life.name for life in fleet.lives] == ['server_0', 'server_1', 'server_0']
