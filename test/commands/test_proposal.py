# SPDX-License-Identifier: Apache-2.0
"""Proposed models read back as what they were."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import pytest
import yaml

from robion_ros.commands.proposal import propose, propose_model, quoted
from robion_ros.factory_file import load
from robion_ros.models.description import Description

DESCRIBED = Description(
    'pi0', 'lerobot', ('front', 'left-wrist'), 2, 3, 2, (), 50, 10, None, 224, 48, '', '', None)


@given(st.text(min_size=1).filter(str.isprintable))
def test_quoted_text_is_read_as_that_text(text):
    assert yaml.safe_load(f'[{quoted(text)}]') == [text]


@pytest.mark.parametrize('described', [
    DESCRIBED, replace(DESCRIBED, action_size=3, step_duration=0.02),
    replace(DESCRIBED, action_names=('shoulder.pos', 'y')),
    replace(DESCRIBED, architecture='tiny', cameras=()),
], ids=['as it is', 'duration known', 'names known', 'cameras by order'])
def test_a_model_is_read_back(described, tmp_path):
    folder = tmp_path / '0 Ünser: checkpoint'
    model = propose_model(described, str(folder), '')
    path = tmp_path / 'factory.yaml'
    text = propose(described, model, folder)
    name = text.splitlines()[1].strip(' :')
    path.write_text(f'{text}servers: {{s: {{models: [{name}]}}}}\n')
    read = load(path).models[name]
    assert not read.capacity
    if described.step_duration:
        assert read.step_duration == 0.0
    else:
        assert read.step_duration == pytest.approx(model.step_duration, abs=1e-5)
    assert replace(read, step_duration=model.step_duration) == model


def test_a_camera_that_is_no_ros_name_keeps_its_own():
    cameras = propose_model(DESCRIBED, 'x', '').cameras
    assert [(name, camera.input) for name, camera in cameras.items()] == [
        ('front', ''), ('left_wrist', 'left-wrist')]


def test_the_name_is_that_of_the_folder():
    model = propose_model(DESCRIBED, 'x', '')
    assert propose(DESCRIBED, model, Path('/a/pick-v2.1')).splitlines()[1] == '  pick_v2_1:'
