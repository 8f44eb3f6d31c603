# SPDX-License-Identifier: Apache-2.0
"""What a factory may be made of, and what its parts say of the rest."""

from dataclasses import replace
import re

from hypothesis import given
from hypothesis import strategies as st
import pytest
from rclpy.validate_full_topic_name import validate_full_topic_name

from robion_ros.config import (
    CameraConfig,
    check_name,
    FactoryConfig,
    FieldError,
    ManagerConfig,
    MAX_CAMERA,
    MAX_NAME,
    ModelConfig,
    NAME,
    nearest,
    propose_name,
    ROBOT,
    roster,
    ServerConfig,
)

MODEL = ModelConfig(architecture='tiny', cameras={'front': CameraConfig()}, joints=('a', 'b'),
                    rate=2.0, slo=0.15, capacity=12)
SERVER = ServerConfig(models=('pick',))
FACTORY = FactoryConfig({'pick': MODEL}, {'gpu': SERVER}, {'pick': ('arm_1', 'arm_2')})


@pytest.mark.parametrize(('part', 'change', 'key', 'problem'), [
    (MODEL, {'rate': 0.0}, 'rate', 'is 0.0, must be from 0.01 to 1000'),
    (MODEL, {'rate': float('nan')}, 'rate', 'is nan'),
    (MODEL, {'slo': float('inf')}, 'slo', 'is inf'),
    (MODEL, {'capacity': -1}, 'capacity', 'is -1, must be from 0'),
    (MODEL, {'max_age': -1.0}, 'max_age', 'is -1.0'),
    (MODEL, {'seed': 2**63}, 'seed', 'must be from 0'),
    (MODEL, {'step_duration': -0.1}, 'step_duration', 'is -0.1, must be from 0.001 to 60'),
    (MODEL, {'step_duration': float('nan')}, 'step_duration', 'is nan'),
    (MODEL, {'cameras': {}}, 'cameras', 'is empty'),
    (MODEL, {'joints': ()}, 'joints', 'is empty'),
    (MODEL, {'joints': ('a', 'b', 'a')}, 'joints[2]', "'a' stands twice"),
    (MODEL, {'actions': ('x', ' ')}, 'actions[1]', 'is empty'),
    (MODEL, {'prompt': ' \n'}, 'prompt', 'holds no word'),
    (MODEL, {'cameras': {'/front': CameraConfig()}}, 'cameras./front', "'front' would be"),
    (MODEL, {'cameras': {'1': CameraConfig()}}, 'cameras.1', "'camera_1' would be"),
    (CameraConfig(), {'transport': 'compresed'}, 'transport', "did you mean 'compressed'?"),
    (CameraConfig(), {'color_order': 'hsv'}, 'color_order', 'must be one of bgr, rgb'),
    (SERVER, {'device': 'gpu0'}, 'device', "must be 'cpu' or 'cuda:<index>'"),
    (SERVER, {'max_batch': 3}, 'max_batch', 'must be a power of two'),
    (SERVER, {'max_batch': 128}, 'max_batch', 'must be from 1 to 64'),
    (SERVER, {'models': ()}, 'models', 'is empty'),
    (SERVER, {'capacities': {'pik': 3}}, 'capacities.pik', "did you mean 'pick'?"),
    (SERVER, {'capacities': {'pick': 0}}, 'capacities.pick', 'is 0, must be from 1'),
    (MODEL, {'priority': 2000}, 'priority', 'is 2000, must be from -1000'),
    (SERVER, {'policy': 'fifo'}, 'policy', 'earliest_slo_first'),
    (SERVER, {'late': 'drop'}, 'late', 'must be one of yield, serve, shed'),
    (ManagerConfig(), {'name': 'the manager'}, 'name', "'the_manager' would be"),
    (ManagerConfig(), {'server_timeout': 0.1}, 'server_timeout', 'must be from 0.3'),
    (FACTORY, {'models': {}}, 'models', 'is empty'),
    (FACTORY, {'servers': {}}, 'servers', 'is empty'),
    (FACTORY, {'models': {'a/b': MODEL}}, 'models.a/b', "'a_b' would be"),
    (FACTORY, {'servers': {'gpu-0': SERVER}}, 'servers.gpu-0', "'gpu_0' would be"),
    (FACTORY, {'servers': {'gpu': replace(SERVER, models=('pik',))}}, 'servers.gpu.models[0]',
     "'pik' is not a valid model; did you mean 'pick'?"),
    (FACTORY, {'servers': {'manager': SERVER}}, 'servers.manager', "'manager' stands twice"),
    (FACTORY, {'robots': {'place': ()}}, 'robots.place', 'must be one of pick'),
    (FACTORY, {'robots': {'pick': ('a', 'gpu')}}, 'robots.pick[1]', "'gpu' stands twice"),
    (FACTORY, {'robots': {'pick': ('a', 'a')}}, 'robots.pick[1]', "'a' stands twice"),
], ids=lambda value: str(value)[:40] if isinstance(value, dict) else None)
def test_mistake_is_named(part: object, change: dict[str, object], key: str,
                          problem: str) -> None:
    with pytest.raises(FieldError) as error:
        replace(part, **change)  # type: ignore[type-var]
    assert error.value.key == key
    assert problem in error.value.problem
    assert str(error.value) == f'{key}: {error.value.problem}'


@pytest.mark.parametrize(('robot', 'proposed'), [
    ('1', 'robot_1'), ('arm-3', 'arm_3'), ('Röbi', 'Robi'), ('robot 1', 'robot_1'),
    ('', 'robot_1'), ('/', 'robot_1'), ('a/b/', 'a/b'), ('a__b', 'a_b'), ('_x', 'x'),
    ('x_', 'x'),
    ('192.168.0.155', 'robot_192_168_0_155'), ('机器人', 'robot_1'), ('a/1', 'a/robot_1'),
    ('x' * 300, 'x' * MAX_CAMERA), (5, 'robot_5'),
], ids=str)
def test_bad_robot_is_refused_and_a_name_proposed(robot: str, proposed: str) -> None:
    with pytest.raises(FieldError, match=f"'{proposed}'") as error:
        replace(FACTORY, robots={'pick': ('fine', robot)})
    assert error.value.key == 'robots.pick[1]'
    assert len(str(error.value)) < 300


@pytest.mark.parametrize('robot', ['r', 'Arm_3', 'line_1/cell_2/arm', 'r' * MAX_NAME])
def test_good_robot_is_taken(robot: str) -> None:
    assert replace(FACTORY, robots={'pick': (robot,)}).robots['pick'] == (robot,)


@given(st.text(), st.sampled_from([NAME, ROBOT]))
def test_proposal_is_valid(name: str, pattern: object) -> None:
    check_name('key', propose_name(name, pattern), pattern,  # type: ignore[arg-type]
               longest=MAX_CAMERA)


@pytest.mark.ros
def test_longest_names_make_a_topic() -> None:
    topic = f'/{"r" * MAX_NAME}/{"c" * MAX_CAMERA}/image_raw/compressed'
    assert validate_full_topic_name(topic)


def test_second_place_of_a_name_knows_the_first() -> None:
    with pytest.raises(FieldError) as error:
        FactoryConfig({'pick': MODEL, 'place': MODEL}, {'gpu': SERVER},
                      {'pick': ('a', 'b'), 'place': ('b',)})
    assert (error.value.key, error.value.other) == ('robots.place[0]', 'robots.pick[1]')


def test_capacity_of_a_server_overrides_the_models() -> None:
    factory = FactoryConfig({'pick': MODEL, 'place': replace(MODEL, capacity=20)},
                            {'gpu': ServerConfig(('pick', 'place'), capacities={'place': 5})})
    assert factory.capacity('gpu', 'pick') == 12
    assert factory.capacity('gpu', 'place') == 5


def test_capacity_that_is_not_given_is_0() -> None:
    factory = FactoryConfig({'pick': replace(MODEL, capacity=0), 'place': MODEL},
                            {'gpu': ServerConfig(('pick', 'place')),
                             'old': ServerConfig(('pick', 'place'), capacities={'pick': 5})})
    assert [factory.capacity('gpu', model) for model in factory.models] == [0, 12]
    assert [factory.capacity('old', model) for model in factory.models] == [5, 12]


def test_actions_are_the_joints_unless_named() -> None:
    assert MODEL.action_names == ('a', 'b')
    assert replace(MODEL, actions=('x',)).action_names == ('x',)


def test_roster_counts_from_one() -> None:
    assert roster('pick', 3) == ('pick_1', 'pick_2', 'pick_3')
    assert roster('pick', 0) == ()


@pytest.mark.parametrize(('names', 'mend'), [
    (['pick', 'place'], "did you mean 'pick'?"), (['x', 'y'], 'must be one of x, y'),
    ([f'r_{index}' for index in range(2000)], 'must be one of r_0, .*, r_19 or 1980 others'),
    ([], 'there is none')])
def test_the_mend_of_a_wrong_name_is_short(names, mend):
    assert re.fullmatch(mend.replace('?', '[?]'), nearest('picc', names))
