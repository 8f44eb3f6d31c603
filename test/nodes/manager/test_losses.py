# SPDX-License-Identifier: Apache-2.0
"""Servers that die or hang: their robots go elsewhere, and back."""

import pytest

pytestmark = pytest.mark.ros

GOOD = '0 every robot is assigned'
ALL = {f'robot_{number}' for number in range(1, 6)}
SPARE = """
models:
  pick: &arm {architecture: tiny, cameras: [front], joints: [a], rate: 2.0, slo: 0.2, capacity: 4}
  place: *arm
servers:
  server_0: &gpu {models: [pick, place]}
  server_1: *gpu
  server_2: *gpu
robots:
  pick: [robot_1, robot_2, robot_3]
  place: [robot_4, robot_5]
manager: {server_timeout: 1.5, call_timeout: 0.5}
"""


def test_robots_of_a_dead_server_go_elsewhere_as_many_as_fit_and_come_back(served) -> None:
    one, other = served.servers.values()
    numbers = {name: other.robots[name].last_request + 50 for name in other.active}
    for name in other.active:
        other.robots[name].last_request = numbers[name]
        other.robots[name].watermark = 7_000
        other.robots[name].prompt = 'do it'
        other.robots[name].prompt_stamp = 6_000
    orphans = set(other.active)
    served.until(lambda: all(served.known(robot) == numbers[robot] for robot in orphans))
    other.die()
    # 4 fit, there are 5.
    served.until(lambda: served.settled(4))
    served.until(lambda: any(text.startswith('1 not every robot is served: over by 1 robot of')
                            for text in served.diagnostics))
    for robot in orphans & set(one.active):
        [told, *_] = one.sent(robot)
        assert told.last_request > numbers[robot] and not told.standby
        assert (told.watermark, told.prompt, told.prompt_stamp) == (7_000, 'do it', 6_000)
    other.restart()
    served.until(lambda: served.settled(5))
    served.until(lambda: served.complaint == GOOD)
    assert other.active


@pytest.mark.parametrize('floor', [SPARE], indirect=True)
def test_robots_go_back_to_a_server_that_was_lost_also_if_another_had_room(floor) -> None:
    servers = [floor.add(f'server_{number}') for number in range(3)]
    floor.manage()
    floor.until(lambda: floor.settled(5))
    before = dict(floor.places)
    lost = next(server for server in servers if server.active)
    lost.die()
    floor.until(lambda: floor.settled(5) and floor.places != before)
    floor.until(lambda: floor.complaint == f'1 {lost.get_name()} is not heard any more')
    lost.restart()
    floor.until(lambda: floor.settled(5) and floor.places == before)
    floor.until(lambda: floor.complaint == GOOD)


def test_request_numbers_go_on_at_a_server_that_was_started_again(floor) -> None:
    server = floor.add('server_0')
    floor.manage()
    floor.until(lambda: floor.settled(4))
    robot = next(iter(server.active))
    number = server.robots[robot].last_request = server.robots[robot].last_request + 70
    floor.until(lambda: floor.known(robot) == number)
    server.die()
    # Heard again, as a new process, before it was missed.
    server.restart()
    floor.until(lambda: floor.settled(4))
    assert server.sent(robot)[-1].last_request > number


def test_loss_of_every_server_is_said_and_published(served) -> None:
    one, other = served.servers.values()
    one.die()
    other.die()
    served.until(lambda: served.assignments and not served.announced)
    served.until(lambda: served.complaint.startswith('1 no living server has model pick'))
    assert {robot.robot for robot in served.assignments[-1].robots} == ALL
    one.restart()
    other.restart()
    served.until(lambda: served.settled(5))


def test_server_that_hung_is_told_its_robots_anew(served) -> None:
    one, other = served.servers.values()
    served.cut_off.add('server_1')
    before = other.active
    other.mute = True
    served.until(lambda: len(served.announced) == 4)
    assert other.active == before
    calls = len(other.calls)
    other.mute = False
    served.until(lambda: len(other.calls) > calls)
    assert not other.calls[calls].robots  # Before anything else it lets go.
    served.until(lambda: served.settled(5))
    assert not set(one.active) & set(other.active)
