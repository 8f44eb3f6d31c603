# SPDX-License-Identifier: Apache-2.0
"""The factory files that are shipped, and any file that is nearly one of them."""

import copy
from dataclasses import asdict, fields
import json
from pathlib import Path
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import yaml

from robion_ros.config import (
    CameraConfig,
    FactoryConfig,
    ManagerConfig,
    ModelConfig,
    ServerConfig,
)
from robion_ros.factory_file import ConfigError, load

CONFIG = Path(__file__).resolve().parents[1] / 'config'
KEYS = [field.name
        for kind in (FactoryConfig, ModelConfig, CameraConfig, ServerConfig, ManagerConfig)
        for field in fields(kind)]
DEMO = yaml.safe_load((CONFIG / 'demo.yaml').read_text())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(['raw', 'pick', 'robot_1', 'cpu', 'name', 'models']),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5) | st.sampled_from(['transport', 'name', 'pick']),
                      inner, max_size=3),
    max_leaves=5)


@pytest.mark.parametrize('name', [
    'demo.yaml', 'eight_models.yaml', 'factory.yaml', 'fleet.yaml'])
def test_file_loads_and_survives_being_written_out(tmp_path: Path, name: str) -> None:
    factory = load(CONFIG / name)
    copied = tmp_path / name
    copied.write_text(json.dumps(asdict(factory)))
    assert load(copied) == factory


def test_demo_is_what_the_demo_needs() -> None:
    factory = load(CONFIG / 'demo.yaml')
    assert {server.device for server in factory.servers.values()} == {'cpu'}
    assert [set(server.models) for server in factory.servers.values()] == [set(factory.models)] * 2
    assert sum(factory.robots.values(), ()) == tuple(f'robot_{n}' for n in range(1, 9))
    transports = {camera.transport for model in factory.models.values()
                  for camera in model.cameras.values()}
    assert transports == {'raw', 'compressed'}
    assert len({model.seed for model in factory.models.values()}) == 2
    assert all(model.prompt for model in factory.models.values())


@pytest.mark.parametrize('key', sorted(set(KEYS)))
def test_example_shows_every_key(key: str) -> None:
    text = (CONFIG / 'factory.yaml').read_text()
    shown = re.findall(rf'(?:^[ #]*|[{{,] *){key}:(?: |$)', text, re.MULTILINE)
    assert len(shown) >= KEYS.count(key)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_value_anywhere_is_taken_or_refused_by_line_and_key(
        tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    document = copy.deepcopy(DEMO)
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(
            list(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(VALUES)
    path = tmp_path_factory.getbasetemp() / 'changed.yaml'
    path.write_text(yaml.safe_dump(document, allow_unicode=True))
    try:
        assert isinstance(load(path), FactoryConfig)
    except ConfigError as error:
        for line in str(error).splitlines():
            assert re.match(rf'{re.escape(str(path))}:\d+: ', line)
