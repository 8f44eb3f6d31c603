# SPDX-License-Identifier: Apache-2.0
"""A demo's factory: as many robots as asked, and models that change half way."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.commands.demo_factory import divide, resize, swap
from robion_ros.config import CameraConfig, FactoryConfig, FieldError, ModelConfig, ServerConfig
from robion_ros.factory_file import dump, load

MODEL = ModelConfig('tiny', {'front': CameraConfig('compressed')}, ('joint_1',), 2.0, 0.15, 12,
                    prompt='pick: the "größte" part\tnow')


def make_factory(**robots: int) -> FactoryConfig:
    return FactoryConfig(dict.fromkeys(robots, MODEL), {'server_0': ServerConfig(tuple(robots))},
                         {model: tuple(f'{model}_{index}' for index in range(count))
                          for model, count in robots.items()})


@pytest.mark.parametrize(('robots', 'shares'), [
    (8, {'pick': 5, 'place': 3}), (1, {'pick': 1, 'place': 0}), (2, {'pick': 1, 'place': 1}),
    (20, {'pick': 13, 'place': 7}),
])
def test_robots_are_divided_as_in_the_file(robots: int, shares: Mapping[str, int]) -> None:
    assert divide(robots, {'pick': 5, 'place': 3}) == shares


@given(st.integers(0, 1000), st.dictionaries(st.text(), st.integers(1, 50), min_size=1))
def test_every_robot_gets_a_model(total: int, weights: Mapping[str, int]) -> None:
    shares = divide(total, weights)
    assert sum(shares.values()) == total
    assert all(abs(shares[name] - total * weight / sum(weights.values())) < 1
               for name, weight in weights.items())


def test_resized_factory_names_its_robots_one_after_another() -> None:
    robots = resize(make_factory(pick=5, place=3), 4).robots
    assert robots == {'pick': ('robot_1', 'robot_2', 'robot_3'), 'place': ('robot_4',)}


def test_factory_file_without_robots_can_be_resized() -> None:
    assert resize(make_factory(pick=0, place=0), 2).robots == {
        'pick': ('robot_1',), 'place': ('robot_2',)}


def test_swap_moves_three_of_five_robots_to_the_other_model() -> None:
    assert swap(resize(make_factory(pick=5, place=3), 8)) == {
        'pick': ('robot_4', 'robot_5'),
        'place': ('robot_1', 'robot_2', 'robot_3', 'robot_6', 'robot_7', 'robot_8')}


@given(st.dictionaries(st.sampled_from(('pick', 'place', 'pack')), st.integers(0, 30), min_size=2)
       .filter(lambda robots: any(robots.values())))
def test_swap_keeps_every_robot_and_changes_at_least_one(robots: Mapping[str, int]) -> None:
    factory = make_factory(**robots)
    before = {robot: model for model, names in factory.robots.items() for robot in names}
    after = before | {robot: model for model, names in swap(factory).items() for robot in names}
    assert after.keys() == before.keys()
    assert after != before


@pytest.mark.parametrize(('factory', 'problem'), [
    (make_factory(pick=0, place=0), 'robots: there is none'),
    (make_factory(pick=3), 'models: the demo has robots change from pick'),
    (replace(make_factory(pick=3, place=1),
             models={'pick': MODEL, 'place': replace(MODEL, joints=('joint_2',))}),
     'models: the demo has robots change from pick'),
], ids=['no robot', 'one model', 'another body'])
def test_factory_without_anything_to_swap_is_refused(factory: FactoryConfig,
                                                     problem: str) -> None:
    with pytest.raises(FieldError, match=problem):
        swap(factory)


def test_dumped_factory_loads_as_the_same(tmp_path: Path) -> None:
    factory = make_factory(pick=2, place=0)
    path = tmp_path / 'factory.yaml'
    path.write_text(dump(factory))
    assert load(path) == factory
