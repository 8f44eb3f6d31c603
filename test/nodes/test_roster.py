# SPDX-License-Identifier: Apache-2.0
"""How an assignment changes the robots of a server: whole, in order, or not at all."""

from collections.abc import Iterator
from typing import Any

import pytest
from std_msgs.msg import String

from robion_ros.core import Dropped, DropReason
from robion_ros.msg import RobotStatus
from robion_ros.nodes import served_robot
from robion_ros.nodes.roster import Refusal
from robion_ros.nodes.served_robot import unheard

from .rosters import Bench, chunk, opened, place, request

pytestmark = pytest.mark.ros


@pytest.fixture
def bench(own_domain: None) -> Iterator[Bench]:
    with opened() as bench:
        yield bench


def test_the_engine_is_told_before_a_request_of_the_new_assignment_is_formed(
        bench: Bench) -> None:
    bench.apply(1, place('r', standby=True), place('s'))
    bench.observe('r')
    bench.observe('s')
    bench.apply(2, place('r', last_request=8), place('s'))
    assert bench.log == [{'s': 'arm'}, {'r': 'arm', 's': 'arm'}, ('r', 9), ('s', 1)]


@pytest.mark.parametrize('wrong', [('Röbi', 'arm'), ('t', 'welder'), ('s', 'arm')])
def test_all_or_none(bench: Bench, wrong: tuple[str, str]) -> None:
    bench.apply(1, place('r'))
    bench.settle()
    before = bench.inputs()
    with pytest.raises(Refusal):
        bench.apply(2, place('s'), place(*wrong))
    bench.settle()
    assert bench.inputs() == before
    assert bench.roster.epoch == 1
    assert bench.log == [{'r': 'arm'}]


def test_states_of_a_robot(bench: Bench) -> None:
    def state() -> int:
        return bench.roster.robots['r'].state
    bench.apply(1, place('r', standby=True))
    assert state() == RobotStatus.STANDBY
    bench.apply(2, place('r'))
    assert state() == RobotStatus.ACTIVE
    bench.observe('r')
    bench.roster.robots['r'].form()
    released, = bench.apply(3, place('r', standby=True)).released
    assert (released.robot, released.last_request, released.watermark) == ('r', 1, 5)
    assert state() == RobotStatus.STANDBY
    released, = bench.apply(4).released
    assert released.last_request == 1
    assert state() == RobotStatus.LEAVING
    assert not bench.apply(5).released, 'it was let go already'
    bench.apply(6, place('r'))
    assert state() == RobotStatus.ACTIVE
    assert bench.roster.robots['r'].handover.last_request == 1


@pytest.mark.parametrize(('outcome', 'counter'), [
    (chunk('r'), 'answered'),
    *((Dropped(request('r'), reason, 'why'), reason.value) for reason in DropReason)],
    ids=lambda value: value if isinstance(value, str) else '')
def test_a_robot_stays_until_its_request_has_ended(bench: Bench, outcome: Any,
                                                   counter: str) -> None:
    bench.apply(1, place('r'))
    robot = bench.roster.robots['r']
    bench.observe('r')
    robot.form()
    bench.apply(2)
    bench.settle()
    assert 'r' in bench.roster.robots
    robot.end(outcome)
    bench.roster.settle()
    bench.settle()
    assert not bench.roster.robots
    counters = vars(bench.memories['r'].counters)
    assert {name for name, value in counters.items() if value} == {'requests', counter}
    assert robot.last_error == ('request 1 failed: why' if counter == 'failed' else '')


def test_a_late_chunk_is_counted_as_such(bench: Bench) -> None:
    bench.apply(1, place('r'))
    bench.roster.robots['r'].end(chunk('r', finished=1.5))
    assert (bench.memories['r'].counters.answered, bench.memories['r'].counters.late) == (1, 1)


def test_a_repeated_call_gives_the_same_answer_until_the_robots_are_released(
        bench: Bench) -> None:
    first = bench.apply(1, place('r'))
    assert bench.apply(1, place('r')) is first
    assert len(bench.log) == 1
    with pytest.raises(Refusal, match='epoch 1 is not newer than 1'):
        bench.apply(1, place('s'))
    bench.roster.release_all()
    with pytest.raises(Refusal, match='call again with a greater one'):
        bench.apply(1, place('r'))


@pytest.mark.parametrize('live', [True, False])
def test_a_robot_that_returns_has_the_instruction_of_the_server_it_comes_from(
        bench: Bench, live: bool) -> None:
    """Also where its clock was set back meanwhile: what is remembered here is older."""
    def hear(prompt: str, stamp: int, live: bool) -> None:
        bench.roster.robots['r']._on_prompt(live, String(data=prompt), stamp)
    bench.apply(1, place('r'))
    hear('old', 5_000, True)
    released, = bench.apply(2).released
    assert (released.prompt, released.prompt_stamp) == ('old', 5_000)
    bench.settle()
    bench.apply(3, place('r', standby=True))
    hear('new', 4_000, live)
    handed = {'prompt': 'new', 'prompt_stamp': 4_000, 'last_request': 20}
    for epoch, model in ((4, 'arm'), (5, 'eye')):
        bench.apply(epoch, place('r', model, **handed))
        handover = bench.roster.robots['r'].handover
        assert (handover.prompt, handover.prompt_stamp, handover.last_request) == (
            'new', 4_000, 20)


def test_an_instruction_that_nobody_else_knows_is_remembered(bench: Bench) -> None:
    bench.apply(1, place('r'))
    bench.roster.robots['r']._on_prompt(True, String(data='sort'), 5_000)
    bench.apply(2)
    bench.settle()
    bench.apply(3, place('r'))
    assert bench.roster.robots['r'].handover.prompt == 'sort'


def test_a_kind_of_trouble_does_not_keep_another_from_being_said(
        bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    bench.apply(1, place('r'))
    robot = bench.roster.robots['r']
    for _ in range(3):
        robot.say('front', 'front: dark')
        robot.say('prompt', 'prompt: empty')
    err = capfd.readouterr().err
    assert err.count('r: front: dark') == 1
    assert err.count('r: prompt: empty') == 1
    assert robot.last_error == ''


def test_what_is_not_heard(bench: Bench) -> None:
    bench.apply(1, place('r'), place('s', 'eye'))
    robots, now = bench.roster.robots, served_robot.monotonic()
    assert unheard(robots, now) == {}, 'it was listened to for no time yet'
    bench.observe('r')
    robots['s'].refusals['top'] = now + 1, 'too dark'
    assert unheard(robots, now + 5.9) == {
        'r': ('arm', {'front': 'no message for 6 s', 'joint_states': 'no message for 6 s'}),
        's': ('eye', {'front': '', 'top': 'too dark', 'joint_states': '', 'prompt': ''})}
    assert unheard(robots, now + 60)['s'][1]['top'] == ''
