# SPDX-License-Identifier: Apache-2.0
"""`robion bench place`, as somebody types it."""

import json
from pathlib import Path

import pytest

from robion_ros.commands.arguments import run as main

CONFIG = Path(__file__).resolve().parents[2] / 'config'
EIGHT = ['bench', 'place', str(CONFIG / 'eight_models.yaml')]
TIMES = ['--times', str(CONFIG / 'h200_times.yaml')]
SHORT = ['--epochs', '1', '--seconds', '1', '--lead', '0.5']
WAYS = ['manager', 'even split', 'whole models', 'one model each']
FACTORY = """
models:
  a: &arm {{architecture: tiny, cameras: [front], joints: [j], rate: 2.0, slo: 5.0, capacity: 9}}
  b: {{<<: *arm, seed: 2, rate: {rate}}}
servers:
  s: &server {{models: [a, b], device: 'cuda:0'}}
  t: *server
robots: {{}}
"""


def test_simulated_servers_serve_every_draw_in_every_way(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'found.json'
    assert main([*EIGHT, *TIMES, *SHORT, '--draws', '2', '--fill', '0.5,0.9',
                 '--json', str(path)]) == 0
    out, err = capsys.readouterr()
    head, *lines = out.splitlines()
    assert head.split()[:2] == ['part', 'draw']
    assert [tuple(line.split()[:2]) for line in lines] == [
        (part, draw) for part in ('0.5', '0.9') for draw in '01' for _ in WAYS]
    found = json.loads(path.read_text())
    assert found['kind'] == 'place' and found['settings']['capacities']['gpu_1/fold'] == 50
    assert [row['way'] for row in found['rows']] == WAYS * 4
    for row in found['rows']:
        assert row['sent'] == row['answered'] + row['superseded'] + row['shed'] + row['unanswered']
        assert (row['unanswered'] > 0) == (row['without'] > 0) == (row['way'] == 'one model each')
        assert sum(row['placed'].values()) + row['without'] == row['robots']
    assert '0.9 filled, draw 1: ' in err and 'no GPU' in err
    assert main(['bench', 'plot', str(path), '--plots', str(tmp_path)]) == 2
    assert "there are no pictures of 'place', only of capacity" in capsys.readouterr().err


def test_servers_in_turn_on_one_device(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'factory.yaml'
    path.write_text(FACTORY.format(rate=2.0))
    assert main(['bench', 'place', str(path), *SHORT, '--in-turn', 'cpu']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[1].split()[2] == 'manager'


@pytest.mark.parametrize(('words', 'problem'), [
    ([*EIGHT, '--times', 'nowhere.yaml'], 'nowhere.yaml'),
    (['bench', 'place', 'nowhere.yaml'], 'nowhere.yaml'),
    ([*EIGHT, '--in-turn', 'gpu'], "is 'gpu', must be"),
    ([*EIGHT, '--in-turn', 'cuda:99'], "gpu_0: BenchError: device 'cuda:99' is not available"),
], ids=['no times', 'no file', 'no device', 'no such GPU'])
def test_what_cannot_be_measured_is_said(words: list[str], problem: str, capsys) -> None:
    assert main([*words, *SHORT]) == 2
    assert problem in capsys.readouterr().err


def test_rates_must_be_one(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'factory.yaml'
    path.write_text(FACTORY.format(rate=3.0))
    assert main(['bench', 'place', str(path), *TIMES, *SHORT]) == 2
    assert 'a 2 Hz, b 3 Hz; give all models one rate' in capsys.readouterr().err


@pytest.mark.parametrize(('fill', 'problem'), [
    ('0.9,2', 'is 2, must be from 0.01 to 1'), ('0.9,', "'' is not a number")])
def test_parts_that_cannot_be_filled_are_said(fill: str, problem: str, capsys) -> None:
    with pytest.raises(SystemExit, match='2'):
        main([*EIGHT, '--fill', fill])
    assert problem in capsys.readouterr().err
