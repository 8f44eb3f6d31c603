# SPDX-License-Identifier: Apache-2.0
"""What an operator asks of the manager, and what robots and servers notice of it."""

from threading import Event

import pytest

from robion_ros.msg import Population, RobotStatus
from robion_ros.words import count

GOOD = '0 every robot is assigned'
FACTORY = """
models:
  pick: &arm
    architecture: tiny
    cameras: [front]
    joints: [a]
    rate: 2.0
    slo: 0.2
    capacity: 4
  place: *arm
servers:
  server_0: {models: [pick]}
  server_1: {models: [place]}
robots:
  pick: [robot_1, robot_2, robot_3]
  place: [robot_4]
manager: {server_timeout: 2.0, call_timeout: 0.5}
"""
"""Where every robot goes follows from its model."""


@pytest.fixture
def served(floor):
    """Return a floor on which four robots are answered."""
    floor.add('server_0', models=['pick'])
    floor.add('server_1', models=['place'])
    floor.manage()
    floor.until(lambda: floor.settled(4))
    return floor


pytestmark = [pytest.mark.ros, pytest.mark.parametrize('floor', [FACTORY], indirect=True,
                                                       ids=['two'])]


@pytest.mark.parametrize(('population', 'robots', 'moved', 'others'), [
    (Population(model='place', robots=['robot_4', 'robot_2']),
     {'robot_1': 'pick', 'robot_2': 'place', 'robot_3': 'pick', 'robot_4': 'place'}, 1,
     ''),
    (Population(model='pick', count=2),
     {'robot_1': 'pick', 'robot_2': 'pick', 'robot_4': 'place'}, 0, ', 1 no longer served'),
    (Population(model='place', count=3),
     {'robot_1': 'pick', 'robot_2': 'pick', 'robot_3': 'pick', 'robot_4': 'place',
      'place_1': 'place', 'place_2': 'place'}, 0, ', 2 newly served'),
    (Population(model='pick'), {'robot_4': 'place'}, 0, ', 3 no longer served'),
], ids=['by name', 'fewer', 'more', 'none'])
def test_populations(served, population, robots, moved, others) -> None:
    answer = served.rebalance(population)
    assert answer.success, answer.message
    assert {robot: model for robot, (model, _) in served.places.items()} == robots
    assert {item.robot: (item.model, item.server) for item in answer.robots} == served.places
    served.until(lambda: served.settled(len(robots)))
    assert (answer.error_code, answer.moved, answer.objective) == (answer.NONE, moved, 0)
    assert answer.optimal
    assert answer.solve_ms > 0 and answer.apply_ms > 0
    assert answer.message == f'{moved} of {count(len(robots), "robot")} moved{others}'


def test_dry_run_changes_nothing(served) -> None:
    places, calls = served.places, [len(server.calls) for server in served.servers.values()]
    count = len(served.assignments)
    answer = served.rebalance(Population(model='place', robots=['robot_1', 'robot_4']),
                              dry_run=True)
    assert answer.success and answer.moved == 1 and answer.apply_ms == 0
    assert answer.message == '1 of 4 robots would move'
    # As if it had not been asked.
    assert served.rebalance().moved == 0
    assert served.places == places
    assert [len(server.calls) for server in served.servers.values()] == calls
    assert len(served.assignments) == count


@pytest.mark.parametrize(('populations', 'code', 'parts'), [
    ([Population(model='pick', count=6)], 'OVER_CAPACITY', ['over by 2 robots of pick', '6']),
    ([Population(model='pick', count=5), Population(model='place', count=7)], 'OVER_CAPACITY',
     ['1 robot of pick', '3 robots of place']),
    ([Population(model='pik', count=1)], 'BAD_POPULATION', ['pik', "'pick'"]),
    ([Population(model='pick', robots=['a', 'a'])], 'BAD_POPULATION', ["'a' stands twice"]),
    ([Population(model='pick', robots=['arm-3'])], 'BAD_POPULATION', ['arm-3', 'arm_3']),
], ids=['over', 'two over', 'model', 'twice', 'name'])
def test_what_cannot_be_is_explained_and_changes_nothing(served, populations, code,
                                                         parts) -> None:
    places = served.places
    answer = served.rebalance(*populations)
    assert not answer.success and answer.error_code == getattr(answer, code)
    for part in parts:
        assert part in answer.message
    assert served.rebalance().success
    assert served.places == places


def test_plan_that_serves_the_most_is_told_and_applied_only_if_asked(served) -> None:
    places = served.places
    populations = [Population(model='pick', count=6), Population(model='place', count=1)]
    for asked in ({}, {'dry_run': True}, {'dry_run': True, 'allow_partial': True}):
        answer = served.rebalance(*populations, **asked)
        assert answer.success == ('allow_partial' in asked)
        assert (answer.unserved, answer.moved) == (2, 0)
        assert [item.robot for item in answer.robots if not item.server] == ['pick_2', 'pick_3']
        assert 'over by 2 robots of pick' in answer.message
        assert served.places == places
    answer = served.rebalance(*populations, allow_partial=True)
    assert answer.success and answer.error_code == answer.NONE, answer.message
    assert answer.message.startswith('0 of 5 robots moved, 1 newly served; not served: over by 2 '
                                     'robots of pick')
    served.until(lambda: served.settled(5))
    assert set(served.places) == {'robot_1', 'robot_2', 'robot_3', 'robot_4', 'pick_1'}
    served.until(lambda: 'not every robot is served: over by 2' in served.complaint)
    # They are part of the factory from then on, and served when there is room.
    served.rebalance(Population(model='pick', robots=['pick_2', 'robot_1']))
    assert set(served.places) == {'robot_1', 'robot_4', 'pick_2'}


def test_rest_is_served_where_a_model_has_no_server(served) -> None:
    served.servers['server_1'].die()
    served.until(lambda: len(served.announced) == 3)
    answer = served.rebalance(Population(model='pick', count=2), allow_partial=True)
    assert answer.success and answer.unserved == 1
    assert 'no server has loaded the model of 1 robot of place' in answer.message
    assert {item.robot: item.server for item in answer.robots} == {
        'robot_1': 'server_0', 'robot_2': 'server_0', 'robot_4': ''}


def test_model_whose_server_is_gone_is_named(served) -> None:
    served.servers['server_1'].die()
    served.until(lambda: len(served.announced) == 3)
    answer = served.rebalance()
    assert answer.error_code == answer.NO_SERVER
    assert '1 robot of place' in answer.message


def test_good_populations_end_a_complaint(served) -> None:
    served.servers['server_1'].die()
    served.until(lambda: served.complaint == (
        '1 no living server has model place loaded; server_1 is not heard any more'))
    assert served.rebalance(Population(model='place')).success
    served.until(lambda: served.complaint == '1 server_1 is not heard any more')
    served.servers['server_1'].restart()
    served.until(lambda: served.complaint == GOOD)


def test_robot_that_moves_goes_on_where_it_was(served) -> None:
    one, other = served.servers['server_0'], served.servers['server_1']
    robot = one.robots['robot_1']
    robot.last_request += 41
    number, robot.watermark = robot.last_request, 5_000
    robot.prompt, robot.prompt_stamp = 'to the left', 4_000
    # Without a stamp it is the default of its old model.
    one.robots['robot_2'].prompt = 'pick the part'
    answer = served.rebalance(Population(model='place', robots=['robot_1', 'robot_2', 'robot_4']))
    assert answer.success and answer.moved == 2, answer.message
    before, after = other.sent('robot_1')
    assert (before.standby, after.standby) == (True, False)
    assert (after.last_request, after.watermark) == (number, 5_000)
    assert (after.prompt, after.prompt_stamp) == ('to the left', 4_000)
    assert other.sent('robot_2')[-1].prompt == ''


def test_robot_that_nobody_hears_is_moved_all_the_same_and_that_is_said(served) -> None:
    served.servers['server_1'].ready = False
    answer = served.rebalance(Population(model='place', robots=['robot_1', 'robot_4']))
    assert answer.success
    assert answer.message == ('1 of 4 robots moved; moved without having been heard by their new '
                              'server: robot_1')
    assert served.places['robot_1'] == ('place', 'server_1')


@pytest.mark.parametrize('name', ['server_0', 'server_1'], ids=['old', 'next'])
def test_server_that_refuses_keeps_robots_where_they_are(served, name) -> None:
    server = served.servers[name]
    server.refusal = 'not today'
    places = served.places
    answer = served.rebalance(Population(model='place', robots=['robot_1', 'robot_4']))
    assert (answer.success, answer.error_code) == (False, answer.NOT_APPLIED)
    assert answer.message == f'{name} refused: not today; trying again'
    assert served.places == places
    server.refusal = ''
    served.until(lambda: served.places.get('robot_1') == ('place', 'server_1'))
    served.until(lambda: served.settled(4))


def test_slow_server_is_waited_for_and_told_once(served) -> None:
    slow = served.servers['server_1']
    slow.hold = Event()
    future = served.ask(Population(model='place', robots=['robot_4', 'new']))
    # Its answer comes after the first call was given up.
    served.until(lambda: served.manager._fleet._clients['server_1']._pending_requests)
    first = set(served.manager._fleet._clients['server_1']._pending_requests)
    served.until(lambda: set(served.manager._fleet._clients['server_1']._pending_requests)
                 - first)
    slow.hold.set()
    served.until(future.done)
    assert future.result().success, future.result().message
    assert len({call.epoch for call in slow.calls}) == 2  # The first of all, and this one.


def test_two_at_once_are_served_one_after_the_other(served) -> None:
    futures = [served.ask(Population(model='place', robots=['robot_4', name]))
               for name in ('one', 'other')]
    served.until(lambda: all(future.done() for future in futures))
    assert all(future.result().success for future in futures)
    served.until(lambda: served.settled(5))
    assert len({'one', 'other'} & set(served.places)) == 1


def test_server_that_dies_meanwhile_loses_its_robots(served) -> None:
    slow = served.servers['server_1']
    slow.hold = Event()
    future = served.ask(Population(model='place', robots=['robot_1', 'robot_4']))
    slow.mute = True
    served.until(future.done)
    assert future.result().error_code == future.result().NOT_APPLIED
    served.until(lambda: set(served.announced) == {'robot_2', 'robot_3'}
                 or 'robot_4' not in served.announced)
    slow.hold.set()
    slow.mute = False
    served.until(lambda: served.settled(4))


def test_a_hundred_leave_nothing_behind(served) -> None:
    for number in range(100):
        robots = ['robot_4', 'robot_1'][:1 + number % 2]
        answer = served.rebalance(
            Population(model='place', robots=robots),
            Population(model='pick', robots=['robot_1', 'robot_2'][number % 2:]))
        assert answer.success, answer.message
    served.until(lambda: served.settled(3))
    for client in served.manager._fleet._clients.values():
        assert not client._pending_requests
    assert all(robot.state == RobotStatus.ACTIVE for server in served.servers.values()
               for robot in server.robots.values())
