# SPDX-License-Identifier: Apache-2.0
"""Joint states and prompts come in, chunks go out, and nothing wrong passes either way."""

from array import array
from dataclasses import replace
from math import inf, nan

from builtin_interfaces.msg import Duration, Time
from hypothesis import example, given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from trajectory_msgs.msg import JointTrajectory

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.core import ActionChunk, Observation, Request, Timings
from robion_ros.msg import ActionChunk as ActionChunkMessage
from robion_ros.nodes.convert import (
    chunk_message,
    from_duration,
    prompt_from,
    stamp_ns,
    state_from,
    to_duration,
    to_time,
    trajectory_message,
)
from robion_ros.nodes.refused import Refused

pytestmark = pytest.mark.ros

JOINTS = ('shoulder', 'elbow', 'wrist')
MODEL = ModelConfig('tiny', {'front': CameraConfig()}, JOINTS, rate=2, slo=0.25, capacity=4)


def joints(name=JOINTS, position=(1, 2, 3), **fields):
    return JointState(name=list(name), position=array('d', position), **fields)


@pytest.mark.parametrize('message', [
    pytest.param(joints(), id="the model's order"),
    pytest.param(joints(['wrist', 'shoulder', 'elbow'], [3, 1, 2]), id='another order'),
    pytest.param(joints(['wheel', *JOINTS, 'gripper'], [9, 1, 2, 3, nan]), id='joints of others'),
    pytest.param(joints(velocity=[nan] * 3, effort=[nan] * 3), id='velocity and effort NaN'),
    pytest.param(joints(velocity=[1.0], effort=[1.0] * 9), id='velocity and effort of odd size'),
])
def test_the_state_is_the_same_vector(message):
    state = state_from(message, JOINTS)
    assert state.dtype == np.float32
    assert state.tolist() == [1, 2, 3]


@pytest.mark.parametrize(('message', 'reason'), [
    pytest.param(joints(['shoulder', 'elbow'], [1, 2]),
                 "joint 'wrist' of the model is missing.*nearest it names is 'elbow'",
                 id='missing'),
    pytest.param(joints(['shoulder', 'elbow', 'Wrist'], [1, 2, 3]), "nearest it names is 'Wrist'",
                 id='spelled otherwise'),
    pytest.param(joints(['left', 'right'], [1, 2]), "joint 'shoulder' of the model is missing",
                 id='another robot'),
    pytest.param(joints([], []), "'shoulder' of the model is missing.*it names none", id='empty'),
    pytest.param(joints(position=[1, 2]), '3 names and 2 positions', id='a position short'),
    pytest.param(joints(position=[]), '3 names and 0 positions', id='no positions'),
    pytest.param(joints([*JOINTS, 'elbow'], [1, 2, 3, 4]), "names 'elbow' twice", id='twice'),
    pytest.param(joints(position=[1, nan, 3]), "'elbow': position is nan", id='NaN'),
    pytest.param(joints(position=[1, 2, -inf]), "'wrist': position is -inf", id='infinite'),
    pytest.param(joints(position=[1e300, 2, 3]), "'shoulder': position is 1e\\+300",
                 id='infinite as float32'),
])
def test_a_state_is_refused_with_the_joint_named(message, reason):
    with pytest.raises(Refused, match=reason):
        state_from(message, JOINTS)


def test_a_refusal_stays_short():
    names = [f'{index}' * 1000 for index in range(1000)]
    with pytest.raises(Refused) as refused:
        state_from(joints(names, range(1000)), JOINTS)
    assert len(str(refused.value)) < 300


@settings(deadline=None)
@given(st.lists(st.sampled_from([*JOINTS, 'gripper']) | st.text(max_size=9), max_size=6),
       st.lists(st.floats(), max_size=6))
def test_no_joint_state_does_harm(names, positions):
    try:
        state = state_from(joints(names, positions), JOINTS)
    except Refused:
        return
    assert state.shape == (3,) and state.dtype == np.float32
    assert np.isfinite(state).all()


@pytest.mark.parametrize('text', [
    'Hello World: stack', '123', 'true', '[a, b]', '{x: 1}', 'pose le gobelet à côté',
    '拿起红色杯子', 'pick the 🍎', '👩‍🔧 wink', 'left\tright', 'first this\nthen that',
    'first\r\nthen', 'x' * 4096, '"quoted" \\ %s {}',
])
def test_a_prompt_arrives_as_exactly_that_string(text):
    assert prompt_from(String(data=text)) == text


def test_blanks_around_a_prompt_are_taken_off():
    assert prompt_from(String(data=' \n pick  it up\t\r\n')) == 'pick  it up'


@pytest.mark.parametrize(('text', 'reason'), [
    *(pytest.param(text, 'empty instruction: the previous one stays', id=name) for name, text in {
        'empty': '', 'spaces': '   ', 'newline': '\n', 'no-break space': '\xa0',
        'zero-width space': '\u200b', 'byte order mark': '\ufeff \ufeff', 'zeros': '\0\0',
    }.items()),
    pytest.param('x' * 4097, '4097 characters, at most 4096', id='too long'),
    pytest.param('pick\x1b[31m it', r"'\\x1b' after 4 characters", id='escape'),
    pytest.param('pick\0it', r"'\\x00' after 4", id='zero'),
    pytest.param('pick\x85it', r"'\\x85' after 4", id='C1'),
    pytest.param('pick \ud83d it', r"'\\ud83d' after 5", id='half an emoji'),
])
def test_a_prompt_that_nobody_means_is_refused(text, reason):
    with pytest.raises(Refused, match=reason):
        prompt_from(String(data=text))


@settings(deadline=None)
@given(st.text(max_size=40))
@example('\x1c pick')
def test_no_prompt_does_harm(text):
    try:
        prompt = prompt_from(String(data=text))
    except Refused:
        return
    assert prompt and prompt == text.strip()
    message = String(data=prompt)
    assert deserialize_message(serialize_message(message), String).data == prompt


LAST = 2**31 - 1


@pytest.mark.parametrize(('ns', 'sec', 'nanosec'), [
    (0, 0, 0), (1, 0, 1), (1_700_000_000_123_456_789, 1_700_000_000, 123_456_789),
    (-1, -1, 999_999_999), (np.int64(5), 0, 5),
])
def test_time_there_and_back(ns, sec, nanosec):
    time = to_time(ns)
    assert (time.sec, time.nanosec) == (sec, nanosec)
    assert stamp_ns(Header(stamp=time)) == ns


@pytest.mark.parametrize(('ns', 'time'), [
    (2**62, Time(sec=LAST, nanosec=999_999_999)), (-2**62, Time(sec=-LAST, nanosec=0)),
])
def test_a_time_too_far_is_the_last_one(ns, time):
    assert to_time(ns) == time


@settings(deadline=None)
@given(st.integers(-2**31, LAST), st.integers(0, 2**32 - 1))
def test_every_stamp_can_be_repeated(sec, nanosec):
    time = to_time(stamp_ns(Header(stamp=Time(sec=sec, nanosec=nanosec))))
    assert deserialize_message(serialize_message(time), Time) == time


@pytest.mark.parametrize(('seconds', 'duration'), [
    (0, Duration()), (0.1, Duration(nanosec=100_000_000)),
    (np.float32(1.5), Duration(sec=1, nanosec=500_000_000)),
    (-0.25, Duration(sec=-1, nanosec=750_000_000)), (0.9999999999, Duration(sec=1)),
    (1e12, Duration(sec=LAST, nanosec=999_999_999)),
])
def test_duration_there_and_back(seconds, duration):
    assert to_duration(seconds) == duration
    assert from_duration(duration) == pytest.approx(min(float(seconds), LAST + 1), abs=1e-9)


@pytest.fixture
def chunk():
    observation = Observation((), np.zeros(3, np.float32), 'pick up the café 🍎', 5_000_000_007)
    request = Request('cell/arm_1', 41, 'pi0', observation, arrived=100.0, deadline=100.25)
    actions = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
    return ActionChunk(request, actions, Timings(queue=0.01, vlm=0.02, adit=0.03, engine=0.07),
                       batch=2, finished=100.125)


def through_the_wire(message):
    return deserialize_message(serialize_message(message), type(message))


def test_a_chunk_says_everything_a_robot_needs(chunk):
    sent = through_the_wire(chunk_message(chunk, MODEL, 0.02, 1_700_000_000_000_000_009))
    assert sent == ActionChunkMessage(
        header=Header(stamp=Time(sec=1_700_000_000, nanosec=9), frame_id=''),
        robot='cell/arm_1', request=41, model='pi0', prompt='pick up the café 🍎',
        observation_stamp=Time(sec=5, nanosec=7), step_duration=Duration(nanosec=20_000_000),
        horizon=4, names=['shoulder', 'elbow', 'wrist'], units=['rad', 'rad', 'rad'],
        actions=array('f', [k / 8 for k in range(12)]), deadline=Duration(nanosec=250_000_000),
        deadline_met=True, server_time=Duration(nanosec=125_000_000),
        engine_time=Duration(nanosec=70_000_000), vlm_time=Duration(nanosec=20_000_000),
        adit_time=Duration(nanosec=30_000_000), batch=2)


def test_a_late_chunk_says_so(chunk):
    message = chunk_message(replace(chunk, finished=100.5), MODEL, 0.02, 0)
    assert not message.deadline_met
    assert from_duration(message.server_time) == 0.5


def test_named_actions_go_out_under_their_names(chunk):
    model = replace(MODEL, actions=('x', 'y', 'grip'), units='m')
    assert chunk_message(chunk, model, 0.02, 0).names == ['x', 'y', 'grip']
    assert chunk_message(chunk, model, 0.02, 0).units == ['m'] * 3
    assert trajectory_message(chunk, model, 0.02).joint_names == ['x', 'y', 'grip']


def test_numpy_scalars_are_cast(chunk):
    request = replace(chunk.request, number=np.uint64(41), arrived=np.float32(100),
                      deadline=np.float64(100.25),
                      observation=replace(chunk.request.observation, stamp_ns=np.int64(7)))
    scalars = replace(chunk, request=request, batch=np.int32(2), finished=np.float32(100.125),
                      timings=Timings(*map(np.float32, (0.01, 0.02, 0.03, 0.07))))
    message = chunk_message(scalars, MODEL, np.float32(0.02), np.int64(9))
    assert through_the_wire(message) == message
    trajectory = trajectory_message(scalars, MODEL, np.float32(0.02))
    assert through_the_wire(trajectory) == trajectory


@pytest.mark.parametrize('actions', [
    pytest.param(np.arange(24, dtype=np.float64).reshape(4, 6)[:, ::2], id='float64 with gaps'),
    pytest.param(np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3)), id='by column'),
])
def test_actions_go_out_row_by_row_however_they_lie(chunk, actions):
    sent = through_the_wire(chunk_message(replace(chunk, actions=actions), MODEL, 0.02, 0))
    assert sent.horizon == len(actions)
    assert np.array_equal(sent.actions, actions.ravel())


def test_a_trajectory_is_what_a_controller_takes(chunk):
    sent = through_the_wire(trajectory_message(chunk, MODEL, 0.1))
    assert isinstance(sent, JointTrajectory)
    assert sent.header.stamp == Time()
    assert sent.joint_names == list(JOINTS)
    assert [list(point.positions) for point in sent.points] == chunk.actions.tolist()
    assert [from_duration(point.time_from_start) for point in sent.points] == [0.1, 0.2, 0.3, 0.4]
    for point in sent.points:
        assert not point.velocities and not point.accelerations and not point.effort


@pytest.mark.parametrize(('actions', 'reason'), [
    (np.zeros((4, 2), np.float32), r'shape \[4, 2\], must be \[steps, 3\] for shoulder, elbow'),
    (np.zeros((0, 3), np.float32), r'shape \[0, 3\]'),
    (np.zeros(3, np.float32), r'shape \[3\]'),
    (np.full((4, 3), nan, np.float32), 'not finite'),
    (np.full((4, 3), inf, np.float32), 'not finite'),
])
@pytest.mark.parametrize('convert', [
    pytest.param(lambda chunk: chunk_message(chunk, MODEL, 0.02, 0), id='chunk'),
    pytest.param(lambda chunk: trajectory_message(chunk, MODEL, 0.02), id='trajectory'),
])
def test_actions_that_no_robot_should_get_are_not_sent(chunk, convert, actions, reason):
    with pytest.raises(Refused, match=reason):
        convert(replace(chunk, actions=actions))
