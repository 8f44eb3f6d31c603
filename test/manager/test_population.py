# SPDX-License-Identifier: Apache-2.0
import pytest

from robion_ros.config import CameraConfig, FactoryConfig, ModelConfig, ServerConfig
from robion_ros.manager.population import (
    BadPopulation,
    new_models,
    Population,
    with_robot,
    without_robot,
)

LONG = 'm' * 150
MODEL = ModelConfig('tiny', {'wrist': CameraConfig()}, ('j1',), rate=2.0, slo=0.1, capacity=8)
FACTORY = FactoryConfig(
    {'pick': MODEL, 'place': MODEL, 'sort': MODEL, LONG: MODEL, 'gpu': MODEL},
    {'gpu_1': ServerConfig(('pick', 'place', 'sort', LONG, 'gpu'))},
    {'pick': ('pick_1', 'pick_2', 'pick_10'), 'place': ('left', 'right')})
RUNNING = {'pick_10': 'pick', 'pick_2': 'pick', 'pick_1': 'pick', 'left': 'place',
           'right': 'place'}


@pytest.mark.parametrize(('running', 'populations', 'changes'), [
    (RUNNING, [], {}),
    (RUNNING, [Population('pick', 3)], {}),
    (RUNNING, [Population('pick', 2)], {'pick_10': None}),
    (RUNNING, [Population('pick', 0)], {'pick_1': None, 'pick_2': None, 'pick_10': None}),
    (RUNNING, [Population('pick', 5)], {'pick_3': 'pick', 'pick_4': 'pick'}),
    (RUNNING, [Population('sort', 2)], {'sort_1': 'sort', 'sort_2': 'sort'}),
    ({'left': 'place'}, [Population('place', 3)], {'right': 'place', 'place_1': 'place'}),
    ({'left': 'place', 'right': 'pick'}, [Population('place', 2)], {'place_1': 'place'}),
    ({'pick_4': 'sort'}, [Population('pick', 5)],
     {name: 'pick' for name in ('pick_1', 'pick_2', 'pick_10', 'pick_3', 'pick_5')}),
    (RUNNING, [Population('sort', robots=('pick_2', 'new'))], {'pick_2': 'sort', 'new': 'sort'}),
    (RUNNING, [Population('place', robots=('right', 'pick_1'))],
     {'left': None, 'pick_1': 'place'}),
    (RUNNING, [Population('place', 7, ('left', 'right'))], {}),
    (RUNNING, [Population('pick', 2), Population('sort', robots=('pick_1',))],
     {'pick_1': 'sort'}),
    (RUNNING, [Population('sort', robots=('pick_1',)), Population('pick', 3)],
     {'pick_1': 'sort', 'pick_3': 'pick'}),
    (RUNNING, [Population('pick', robots=('left',)), Population('place', robots=('pick_1',))],
     {'left': 'pick', 'pick_1': 'place', 'pick_2': None, 'pick_10': None, 'right': None}),
    (RUNNING, [Population('pick', 4), Population('sort', robots=('pick_3',))],
     {'pick_4': 'pick', 'pick_3': 'sort'}),
    (RUNNING, [Population('gpu', 1)], {'gpu_2': 'gpu'}),
    ({}, [Population('place', 1)], {'left': 'place'}),
    (RUNNING, [Population('sort', robots=('cell_1/arm',))], {'cell_1/arm': 'sort'}),
], ids=['as they are', 'same count', 'last leaves', 'none', 'more', 'new model',
        'factory file first', 'not from another model', 'names in use', 'named leaves', 'named',
        'count unused', 'named and count', 'count and named', 'exchange', 'name taken by other',
        'name of a server', 'from nothing', 'namespace'])
def test_new_models(running, populations, changes) -> None:
    expected = {robot: model for robot, model in {**running, **changes}.items() if model}
    assert new_models(FACTORY, running, populations) == expected


def test_result_is_in_natural_order() -> None:
    assert list(new_models(FACTORY, RUNNING, [])) == [
        'left', 'pick_1', 'pick_2', 'pick_10', 'right']


@pytest.mark.parametrize(('populations', 'message'), [
    ([Population('pik', 1)], r"populations\[0\].model: 'pik' is not a valid model; did you mean "
                             "'pick'"),
    ([Population('pick', 1), Population('pick', 2)],
     r"populations\[1\].model: 'pick' stands twice, at populations\[0\].model already"),
    ([Population('pick', robots=('r', 'r'))],
     r"populations\[0\].robots\[1\]: 'r' stands twice, at populations\[0\].robots\[0\] already"),
    ([Population('pick', robots=('r',)), Population('place', robots=('r',))],
     r"populations\[1\].robots\[0\]: 'r' stands twice, at populations\[0\].robots\[0\] already"),
    ([Population('pick', robots=('arm 1',))],
     r"populations\[0\].robots\[0\]: 'arm 1' is not a valid ROS name .* 'arm_1' would be"),
    ([Population('pick', robots=('',))], r"populations\[0\].robots\[0\]: '' is not a valid"),
    ([Population('pick', robots=('gpu_1',))], "'gpu_1' stands twice, at servers.gpu_1 already"),
    ([Population('pick', robots=('manager',))], "'manager' stands twice, at manager.name already"),
    ([Population('pick', 2**32 - 1)], r'populations\[0\].count: is 4294967295, must be from 0'),
    ([Population(LONG, 1)], r"populations\[0\]: 'm+\.\.\.' is not a valid ROS name"),
], ids=['unknown model', 'model twice', 'robot twice', 'robot of two models', 'invalid name',
        'empty name', 'server', 'manager', 'count', 'made name'])
def test_bad_population(populations, message) -> None:
    with pytest.raises(BadPopulation, match=message):
        new_models(FACTORY, RUNNING, populations)


def test_robot_comes_changes_its_model_and_leaves() -> None:
    here = with_robot(FACTORY, RUNNING, 'pick_3', 'pick')
    assert here == {**RUNNING, 'pick_3': 'pick'}
    assert list(here) == ['left', 'pick_1', 'pick_2', 'pick_3', 'pick_10', 'right']
    assert with_robot(FACTORY, here, 'pick_3', 'pick') == here
    assert with_robot(FACTORY, here, 'pick_3', 'place') == {**RUNNING, 'pick_3': 'place'}
    assert without_robot(here, 'pick_3') == RUNNING


@pytest.mark.parametrize(('robot', 'model', 'message'), [
    ('r', 'pik', "model: 'pik' is not a valid model; did you mean 'pick'"),
    ('arm 1', 'pick', "robot: 'arm 1' is not a valid ROS name .* 'arm_1' would be"),
    ('gpu_1', 'pick', "robot: 'gpu_1' stands twice, at servers.gpu_1 already"),
    ('manager', 'pick', "robot: 'manager' stands twice, at manager.name already"),
], ids=['unknown model', 'invalid name', 'server', 'manager'])
def test_robot_that_cannot_come(robot, model, message) -> None:
    with pytest.raises(BadPopulation, match=message):
        with_robot(FACTORY, RUNNING, robot, model)


def test_robot_that_is_not_there_cannot_leave() -> None:
    with pytest.raises(BadPopulation, match="'pick_11' is not a valid robot; did you mean"):
        without_robot(RUNNING, 'pick_11')
