# SPDX-License-Identifier: Apache-2.0
"""Which robots a policy of Isaac-GR00T moves is read, or what it lacks is said."""

import shutil

import pytest

from robion_ros.models.folder import CheckpointError
from robion_ros.models.isaac_configs import DATA_CONFIGS, EMBODIMENTS, make_data_config
from robion_ros.models.isaac_folder import METADATA, read_embodiment
from robion_ros.models.isaac_units import MODES, Rotation

from .golden import edit_json, FOLDER, GOLDEN


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FOLDER / 'gr00t', tmp_path / 'checkpoint')


def config(**changes):
    return lambda folder: edit_json(folder / 'config.json', lambda values: values.update(changes))


def metadata(change):
    return lambda folder: edit_json(folder / METADATA,
                                    lambda values: change(values['new_embodiment']))


def test_all_of_the_data_is_taken_where_nothing_is_said(folder):
    robots = read_embodiment(folder)
    assert robots.cameras == ('front', 'wrist') and robots.number == 31
    assert robots.sizes('state') == (3, 1, 4) and robots.step_duration == 0.05
    assert robots.names('action') == (*(f'arm_{index}' for index in range(1, 7)), 'gripper')
    assert 'write data_config into config.json' in robots.notes[0]


def test_what_config_json_says_of_the_data_counts(folder):
    config(data_config={'video_keys': ['video.wrist'], 'state_keys': ['gripper', 'state.arm'],
                        'action_keys': ['arm'],
                        'state_normalization_modes': {'state.arm': 'sin_cos'}})(folder)
    robots = read_embodiment(folder)
    assert robots.cameras == ('wrist',) and robots.sizes('state') == (1, 3) and not robots.notes
    found = robots.change('state').apply(GOLDEN['gr00t'].seen(0, 'state').numpy()[:4])
    assert len(found) == 7 and abs(found[1:]).max() <= 1


def test_one_of_several_kinds_of_robots_is_chosen_by_its_name(folder):
    edit_json(folder / METADATA,
              lambda values: values.update(gr1=dict(values['new_embodiment'])))
    with pytest.raises(CheckpointError, match=r'has new_embodiment, gr1: write one of them as '
                                              r'embodiment_tag into config\.json'):
        read_embodiment(folder)
    config(embodiment_tag='gr1')(folder)
    assert read_embodiment(folder).number == EMBODIMENTS['gr1'] == 24


def test_a_quaternion_becomes_six_numbers(folder):
    def turn(values):
        values['modalities']['state']['wrist']['rotation_type'] = 'quaternion'
    metadata(turn)(folder)
    with pytest.raises(CheckpointError, match=r'how wrist were scaled is code .*data_config'):
        read_embodiment(folder)
    config(data_config={'video_keys': ['front'], 'state_keys': ['wrist'], 'action_keys': ['arm'],
                        'state_target_rotations': {'state.wrist': 'rotation_6d'}})(folder)
    assert isinstance(read_embodiment(folder).change('state').changes[0], Rotation)


def drop(*path):
    def change(values):
        for key in path[:-1]:
            values = values[key]
        del values[path[-1]]
    return metadata(change)


def put(value, *path):
    def change(values):
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = value
    return metadata(change)


DAMAGES = {
    'no metadata': (lambda folder: (folder / METADATA).unlink(),
                    'has no experiment_cfg/metadata.json; .* Isaac-GR00T saves it'),
    'no JSON': (lambda folder: (folder / METADATA).write_text('{'),
                r'metadata\.json is not JSON: '),
    'a list': (lambda folder: (folder / METADATA).write_text('[]'), r'metadata\.json: '),
    'no statistics': (drop('statistics'), 'statistics is missing'),
    'no part': (drop('modalities', 'video'), 'video is missing'),
    'a statistic': (drop('statistics', 'state', 'arm', 'max'),
                    'state arm: max of its statistics must be 3 finite numbers'),
    'another length': (put([1.0], 'statistics', 'action', 'arm', 'min'),
                       'action arm: min of its statistics must be 6 finite numbers'),
    'no shape': (put('six', 'modalities', 'action', 'arm', 'shape'), "shape is 'six', must be"),
    'no speed': (drop('modalities', 'video', 'front', 'fps'), 'video front: fps is missing'),
    'still': (put(0.0, 'modalities', 'video', 'front', 'fps'), 'video front: '),
    'another tag': (config(embodiment_tag='gr2'), "has new_embodiment, embodiment_tag .* 'gr2'"),
    'another data config': (config(data_config='so101'), "'so101' is not known; did you mean"),
    'parts it lacks': (config(data_config='so100'), "has no (video|state) 'webcam|single_arm'"),
    'no data config': (config(data_config=5), 'data_config: '),
    'an unknown field': (config(data_config={'video': []}), 'video is not one of video_keys'),
    'no names': (config(data_config={'video_keys': 'front'}), "video_keys is 'front', must be a "),
    'empty': (config(data_config={'video_keys': ['front']}), 'state_keys is missing or empty'),
    'a mode': (config(data_config={'video_keys': ['front'], 'state_keys': ['arm'],
                                   'action_keys': ['arm'],
                                   'action_normalization_modes': {'arm': 'minmax'}}),
               "action arm: scaling by 'minmax' is not known; did you mean 'min_max'"),
    'sines of actions': (config(data_config={'video_keys': ['front'], 'state_keys': ['arm'],
                                             'action_keys': ['arm'],
                                             'action_normalization_modes': {'arm': 'sin_cos'}}),
                         "action arm: scaling by 'sin_cos'"),
    'rotation of none': (config(data_config={'video_keys': ['front'], 'state_keys': ['arm'],
                                             'action_keys': ['arm'], 'state_target_rotations':
                                             {'arm': 'rotation_6d'}}),
                         'state arm: a change from None to rotation_6d is not served'),
    'rotation of actions': (config(data_config={
        'video_keys': ['front'], 'state_keys': ['arm'], 'action_keys': ['arm'],
        'action_target_rotations': {'arm': 'axis_angle'}}),
        'action arm: a change from None to axis_angle is not served'),
}


@pytest.mark.parametrize('damage, message', DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_is_said(folder, damage, message):
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        robots = read_embodiment(folder)
        robots.change('state'), robots.change('action'), robots.step_duration


@pytest.mark.parametrize('name', DATA_CONFIGS)
def test_known_robots_are_whole(name):
    data = DATA_CONFIGS[name]
    assert make_data_config({key: list(value) if isinstance(value, tuple) else value
                             for key, value in vars(data).items()}) == data
    for keys, modes in ((data.state_keys, data.state_normalization_modes),
                        (data.action_keys, data.action_normalization_modes)):
        assert len(set(keys)) == len(keys)
        assert set(modes) <= set(keys) and set(modes.values()) <= set(MODES)
    assert set(data.state_target_rotations) <= set(data.state_keys)
