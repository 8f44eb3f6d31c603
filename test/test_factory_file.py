# SPDX-License-Identifier: Apache-2.0
"""A factory file is read as it is meant, and each mistake is said with line, key and mend."""

from collections.abc import Callable
from pathlib import Path
import re

import pytest

from robion_ros.config import (
    CameraConfig,
    FactoryConfig,
    ManagerConfig,
    ModelConfig,
    ServerConfig,
)
from robion_ros.factory_file import ConfigError, load

FACTORY = """\
models:
  pick:
    architecture: tiny
    cameras: [front]
    joints: [a, b]
    rate: 2
    slo: 0.15
    capacity: 12
servers:
  gpu: {models: [pick]}
robots:
  pick: 2
"""

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that makes a factory file of a text."""
    def write(text: str | bytes) -> Path:
        path = tmp_path / 'factory.yaml'
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path
    return write


def changed(old: str, new: str) -> str:
    assert FACTORY.count(old) == 1
    return FACTORY.replace(old, new)


def test_short_forms_and_defaults(write: Write) -> None:
    assert load(write(FACTORY)) == FactoryConfig(
        models={'pick': ModelConfig('tiny', {'front': CameraConfig()}, ('a', 'b'), rate=2.0,
                                    slo=0.15, capacity=12)},
        servers={'gpu': ServerConfig(('pick',))},
        robots={'pick': ('pick_1', 'pick_2')},
        manager=ManagerConfig())


@pytest.mark.parametrize(('cameras', 'expected'), [
    ('[front, wrist]', {'front': CameraConfig(), 'wrist': CameraConfig()}),
    ('{front: raw, wrist: compressed}',
     {'front': CameraConfig(), 'wrist': CameraConfig('compressed')}),
    ('{front: , wrist: {color_order: rgb}}',
     {'front': CameraConfig(), 'wrist': CameraConfig(color_order='rgb')}),
    ('{wrist: {transport: compressed, color_order: rgb}}',
     {'wrist': CameraConfig('compressed', 'rgb')}),
])
def test_cameras(write: Write, cameras: str, expected: dict[str, CameraConfig]) -> None:
    found = load(write(changed('[front]', cameras))).models['pick'].cameras
    assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize(('robots', 'expected'), [
    ('robots: {pick: [x, line_1/y]}', {'pick': ('x', 'line_1/y')}),
    ('robots: {pick: 0}', {'pick': ()}),
    ('robots: {pick: []}', {'pick': ()}),
    ('robots: {}', {}),
    ('robots:', {}),
    ('', {}),
])
def test_robots(write: Write, robots: str, expected: dict[str, tuple[str, ...]]) -> None:
    assert load(write(changed('robots:\n  pick: 2\n', robots))).robots == expected


@pytest.mark.parametrize(('text', 'expected'), [
    ('rate: 10', 10.0), ('rate: 1e1', 10.0), ('rate: .5', 0.5), ('rate: 010', 10.0),
])
def test_numbers(write: Write, text: str, expected: float) -> None:
    rate = load(write(changed('rate: 2', text))).models['pick'].rate
    assert (type(rate), rate) == (float, expected)


@pytest.mark.parametrize(('text', 'expected'), [('true', True), ('no', False), ('On', True)])
def test_truth(write: Write, text: str, expected: bool) -> None:
    path = write(changed('rate: 2', f'rate: 2\n    joint_trajectory: {text}'))
    assert load(path).models['pick'].joint_trajectory is expected


@pytest.mark.parametrize('prompt', [
    'Hello World: stack', '123', 'true', '[a, b]', '{x: 1}', 'grüße', '拿起零件', '🤖 # go'])
def test_quoted_prompt_arrives_as_it_is(write: Write, prompt: str) -> None:
    path = write(changed('rate: 2', f"rate: 2\n    prompt: '{prompt}'"))
    assert load(path).models['pick'].prompt == prompt


@pytest.mark.parametrize(('checkpoint', 'expected'), [
    ('./weights/pick', '{folder}/weights/pick'),
    ('weights/new/pick', '{folder}/weights/new/pick'),
    ('pick', '{folder}/pick'),
    ('../pick', '{parent}/pick'),
    ('/data/pick', '/data/pick'),
    ('~/pick', '/home/me/pick'),
    ("''", ''),
])
def test_checkpoint_is_relative_to_the_file(
        write: Write, monkeypatch: pytest.MonkeyPatch, checkpoint: str, expected: str) -> None:
    path = write(changed('rate: 2', f'rate: 2\n    checkpoint: {checkpoint}'))
    monkeypatch.setenv('HOME', '/home/me')
    monkeypatch.chdir(path.parent)
    expected = expected.format(folder=path.parent, parent=path.parent.parent)
    assert load(path).models['pick'].checkpoint == expected
    assert load('factory.yaml').models['pick'].checkpoint == expected


def test_a_model_of_the_hub_is_named_where_there_is_no_such_folder(write: Write) -> None:
    path = write(changed('rate: 2', 'rate: 2\n    checkpoint: lerobot/pi0_base'))
    assert load(path).models['pick'].checkpoint == 'lerobot/pi0_base'
    (path.parent / 'lerobot' / 'pi0_base').mkdir(parents=True)
    assert load(path).models['pick'].checkpoint == str(path.parent / 'lerobot' / 'pi0_base')


def test_a_tokenizer_is_always_a_file(write: Write) -> None:
    path = write(changed('rate: 2', 'rate: 2\n    tokenizer: google/tokenizer.json'))
    assert load(path).models['pick'].tokenizer == str(path.parent / 'google' / 'tokenizer.json')


def test_merge_keys_take_over_and_own_keys_win(write: Write) -> None:
    text = changed('  pick:\n', '  pick: &arm\n').replace(
        'servers:\n', '  place:\n    seed: 7\n    <<: *arm\n    rate: 5\nservers:\n')
    models = load(write(text)).models
    assert (models['place'].rate, models['place'].seed) == (5.0, 7)
    assert models['place'].joints == models['pick'].joints
    assert list(models) == ['pick', 'place']


@pytest.mark.parametrize(('text', 'messages'), [
    (changed('rate: 2', 'rate: 5000'),
     ['6: models.pick.rate: is 5000.0, must be from 0.01 to 1000']),
    (changed('rate: 2', 'rat: 2'),
     ["6: models.pick.rat: unknown key; did you mean 'rate'?",
      '2: models.pick: lacks rate; share/robion_ros/config/factory.yaml is an example']),
    (changed('    rate: 2\n    slo: 0.15\n    capacity: 12\n', ''),
     ['2: models.pick: lacks rate, slo; '
      'share/robion_ros/config/factory.yaml is an example']),
    ('robots: {}\n', ['1: lacks models, servers; '
                      'share/robion_ros/config/factory.yaml is an example']),
    (changed('models:\n', 'modles:\n'),
     ["1: modles: unknown key; did you mean 'models'?",
      '1: lacks models; share/robion_ros/config/factory.yaml is an example']),
    (changed('servers:\n', 'servers:\nfleet: 3\n').replace('  gpu: {models: [pick]}\n', ''),
     ['10: fleet: unknown key; must be one of models, servers, robots, manager']),
    (changed('  gpu: {models: [pick]}\n', ''), ['9: servers: is empty, must name at least one']),
    (changed('rate: 2', 'prompt: yes\n    rate: 2'),
     ["6: models.pick.prompt: 'yes' must be text, not true or false; write it in quotes"]),
    (changed('rate: 2', 'prompt: 5\n    rate: 2'),
     ["6: models.pick.prompt: '5' must be text, not a number; write it in quotes"]),
    (changed('rate: 2', 'prompt: 2026-01-01\n    rate: 2'),
     ["6: models.pick.prompt: '2026-01-01' must be text, not a date; write it in quotes"]),
    (changed('rate: 2', 'prompt: [a, b]\n    rate: 2'),
     ['6: models.pick.prompt: must be text, not a list; write it in quotes']),
    (changed('rate: 2', 'prompt:\n    rate: 2'),
     ['6: models.pick.prompt: must be text, not empty']),
    (changed('rate: 2', 'prompt: !run x\n    rate: 2'),
     ["6: models.pick.prompt: 'x' must be text, not !run; write it in quotes"]),
    (changed('rate: 2', 'rate: yes'),
     ["6: models.pick.rate: 'yes' must be a decimal number, not true or false"]),
    (changed('rate: 2', "rate: '2'"),
     ["6: models.pick.rate: '2' must be a decimal number, not text; write it without quotes"]),
    (changed('rate: 2', 'rate: 1:30'), ["6: models.pick.rate: '1:30' must be a decimal number"]),
    (changed('rate: 2', 'rate:'), ['6: models.pick.rate: must be a decimal number, not empty']),
    (changed('rate: 2', 'rate: .nan'), ["6: models.pick.rate: '.nan' must be a decimal number"]),
    (changed('capacity: 12', 'capacity: 12.0'),
     ["8: models.pick.capacity: '12.0' must be a whole number"]),
    (changed('rate: 2', 'joint_trajectory: 1\n    rate: 2'),
     ["6: models.pick.joint_trajectory: '1' must be true or false, not a number"]),
    (changed('[a, b]', 'a'),
     ["5: models.pick.joints: 'a' must be a list, for example [a, b], not text"]),
    (changed('[a, b]', '\n    - a\n    - 5'),
     ["7: models.pick.joints[1]: '5' must be text, not a number; write it in quotes"]),
    (changed('{models: [pick]}', '[pick]'),
     ["10: servers.gpu: must be a mapping ('key: value' lines), not a list"]),
    (changed('{models: [pick]}', '{models: [pik]}'),
     ["10: servers.gpu.models[0]: 'pik' is not a valid model; did you mean 'pick'?"]),
    (changed('[front]', '[front, front]'),
     ["4: models.pick.cameras[1]: 'front' stands twice, first in line 4 "
      '(models.pick.cameras[0])']),
    (changed('[front]', '{front: rw}'),
     ["4: models.pick.cameras.front.transport: 'rw' is not a valid transport; "
      "did you mean 'raw'?"]),
    (changed('pick: 2\n', 'pick: -1\n'), ['12: robots.pick: is -1, must be from 0 to 10000']),
    (changed('pick: 2\n', 'pick: 99999999\n'),
     ['12: robots.pick: is 99999999, must be from 0 to 10000']),
    (changed('pick: 2\n', "pick: '2'\n"),
     ["12: robots.pick: '2' must be a count or a list, for example [a, b], not text; "
      'write it without quotes']),
    (changed('pick: 2\n', 'pick:\n  - x\n  - y\n  - x\n'),
     ["15: robots.pick[2]: 'x' stands twice, first in line 13 (robots.pick[0])"]),
    (changed('servers:\n', '  pick: {}\nservers:\n'),
     ["9: models: 'pick' stands twice, first in line 2; rename or remove one"]),
    (changed('  gpu: {models: [pick]}', '  gpu: {models: [pick]}\n  gpu: {models: [pick]}'),
     ["11: servers: 'gpu' stands twice, first in line 10; rename or remove one"]),
    (changed('slo: 0.15', 'rate: 3'),
     ["7: models.pick: 'rate' stands twice, first in line 6; rename or remove one"]),
    (changed('slo: 0.15', '<<: {slo: 1, slo: 2}'),
     ["7: models.pick: 'slo' stands twice, first in line 7; rename or remove one"]),
    (changed('slo: 0.15', '<<: 5'),
     ['7: models.pick: expected a mapping or list of mappings for merging, but found scalar']),
    (changed('slo: 0.15', '[slo]: 5'), ['7: models.pick: a key must be a word']),
    (changed('rate: 2', '"ra\\nte": 2\n    rate: 2'),
     ["6: models.pick.ra\\nte: unknown key; did you mean 'rate'?"]),
    ('hello\n', ["1: 'hello' must be a mapping ('key: value' lines), not text"]),
    ('- a\n', ["1: must be a mapping ('key: value' lines), not a list"]),
    (changed('rate: 2', 'prompt: stack: all\n    rate: 2'),
     ["6: is not YAML: mapping values are not allowed here; text that holds ': ' or begins "
      'with a sign needs quotes']),
    ('a: *b\n', ["1: is not YAML: found undefined alias 'b'; text that holds ': ' or begins "
                 'with a sign needs quotes']),
])
def test_mistakes_are_said_with_line_key_and_mend(
        write: Write, text: str, messages: list[str]) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).splitlines() == [f'{path}:{message}' for message in messages]


def test_all_mistakes_are_said_at_once_and_those_of_a_merged_mapping_once(write: Write) -> None:
    text = changed('  pick:\n', '  pick: &arm\n').replace('slo: 0.15', 'slo: no').replace(
        'servers:\n', '  place:\n    <<: *arm\n    rate: x\nservers:\n').replace(
        'pick: 2', 'pick: two')
    path = write(text)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert re.findall(r':(\d+: \S+):', str(error.value)) == [
        '7: models.pick.slo', '11: models.place.rate', '15: robots.pick']


@pytest.mark.parametrize(('data', 'message'), [
    (b'', ': is empty; write models, servers: '),
    (b'# nothing\n', ': is empty'),
    (b'models:\n  a: \xff\n', ':2: is not UTF-8; save it in that encoding'),
    (b'a: \x00', ': is not YAML: '),
    (b'a: b\n---\na: b\n', ':2: is not YAML: but found another document'),
    (b'[' * 5000, ': is nested too deeply'),
], ids=['empty', 'comment', 'not UTF-8', 'NUL', 'two documents', 'deep'])
def test_what_is_no_factory_file_is_said(write: Write, data: bytes, message: str) -> None:
    path = write(data)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).startswith(f'{path}{message}')


def test_missing_file_and_folder_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='there is no such file; share/robion_ros/'):
        load(tmp_path / 'none.yaml')
    with pytest.raises(ConfigError, match='cannot be read: Is a directory'):
        load(tmp_path)


def test_byte_order_mark_is_skipped(write: Write) -> None:
    assert load(write(b'\xef\xbb\xbf' + FACTORY.encode())).robots


def test_merges_of_merges_stay_small(write: Write) -> None:
    bomb = 'x0: &x0 {a: 1, b: 2}\n' + ''.join(
        f'x{n}: &x{n} {{<<: [{", ".join([f"*x{n - 1}"] * 9)}]}}\n' for n in range(1, 30))
    with pytest.raises(ConfigError, match=r'gpu.a: unknown key'):
        load(write(bomb + changed('{models: [pick]}', '{models: [pick], <<: *x29}')))


def test_merge_into_itself_is_no_endless_loop(write: Write) -> None:
    text = changed('  pick:\n', '  pick: &arm\n    <<: *arm\n')
    assert load(write(text)).models['pick'].rate == 2.0
