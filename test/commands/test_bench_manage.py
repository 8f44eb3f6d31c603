# SPDX-License-Identifier: Apache-2.0
"""`robion bench manage`, as somebody types it."""

import json
from pathlib import Path

import pytest

from robion_ros.commands.arguments import run as main

SMALL = ['bench', 'manage', '--sizes', '4x3x20,3x2x9', '--seeds', '1', '--seconds', '0.2']


def test_table_and_file_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'found.json'
    assert main([*SMALL, '--changes', '1', '--json', str(path)]) == 0
    found = json.loads(path.read_text())
    assert found['kind'] == 'manage' and len(found['rows']) == 8
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ['size', 'kind', 'seed']
    assert [line.split()[:2] for line in lines[1:]] == [
        [row['size'], row['kind']] for row in found['rows']]


def test_best_objectives_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / 'best.json'
    assert main([*SMALL, '--kinds', 'groups', '--record', str(path)]) == 0
    best = json.loads(path.read_text())
    assert best['objectives']['3x2x9 groups 0'] >= 0
    assert '16x16x400 identical 0' in best['objectives']


@pytest.mark.parametrize(('words', 'problem'), [
    (['--sizes', '8x4'], "'8x4' is not like 8x4x64"),
    (['--sizes', '8x0x64'], "'8x0x64' is not like"),
    (['--sizes', '8x4x7'], 'of each model one or more'),
    (['--kinds', 'equal'], "'equal' is not one of identical"),
], ids=['two numbers', 'no server', 'too few robots', 'kind'])
def test_wrong_arguments_are_named(words: list[str], problem: str,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(['bench', 'manage', *words])
    assert problem in capsys.readouterr().err
