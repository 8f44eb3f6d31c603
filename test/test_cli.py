# SPDX-License-Identifier: Apache-2.0
"""The `robion` command, as somebody types it."""

from collections.abc import Iterator
import json
from pathlib import Path
import re
import signal
import subprocess
import sys

import pytest

from robion_ros.commands.arguments import run as main
from robion_ros.commands.stop import SIGNALS

DEMO = Path(__file__).resolve().parents[1] / 'config' / 'demo.yaml'


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Give back what a command takes for the rest of its process' life."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def edit(tmp_path: Path, old: str, new: str) -> str:
    """Return a factory file that differs from the demo's."""
    text = DEMO.read_text()
    assert old in text
    path = tmp_path / 'factory.yaml'
    path.write_text(text.replace(old, new))
    return str(path)


def test_help_loads_nothing_heavy() -> None:
    script = ('import sys; from robion_ros.commands.arguments import make_parser; '
              'make_parser().format_help(); '
              'print({"torch", "rclpy", "ortools", "numpy", "cv2"} & set(sys.modules))')
    assert subprocess.check_output([sys.executable, '-c', script], text=True) == 'set()\n'


@pytest.mark.parametrize(('words', 'problem'), [
    (['demo', '--robots', '0'], 'is 0, must be from 1 to'),
    (['demo', '--robots', 'many'], "'many' is not a number"),
    (['demo', '--seconds', 'nan'], 'is nan, must be from 2 to'),
    (['demo', '--json', '/nowhere/x.json'], '/nowhere/x.json cannot be written: is /nowhere'),
    (['plan', 'factory.yaml', '--json', '/'], '/ is a folder, name a file'),
    (['demo', '--domain', '233'], 'is 233, must be from 0 to 232'),
    (['up'], 'FACTORY.yaml'),
    (['up', 'factory.yaml', '--log-level', 'loud'], "invalid choice: 'loud'"),
    ([], 'COMMAND'),
], ids=['no robots', 'not a number', 'nan', 'no folder', 'a folder', 'domain', 'no file', 'level',
        'no command'])
def test_wrong_arguments_are_named(words: list[str], problem: str,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_plan_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'plan.json'
    assert main(['plan', str(DEMO), '--json', str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ['server', 'load', 'pick', 'place', 'robots']
    # Each model keeps to one server, and the other way round would be the same.
    assert sorted(line[1:] for line in lines[1:3]) == [
        ['1/4', '=', '25', '%', '0', '3', 'robot_6', 'robot_7', 'robot_8'],
        ['5/12', '=', '42', '%', '5', '0', 'robot_1', 'robot_2', 'robot_3', 'robot_4',
         'robot_5']]
    assert not any('no robots' in ' '.join(line) for line in lines)
    assert lines[4][:3] == ['objective', '0', '(optimal),']
    plan = json.loads(path.read_text())
    assert plan['objective'] == 0 and plan['optimal']
    assert sorted(server['load'] for server in plan['servers'].values()) == ['1/4', '5/12']


def test_plan_without_robots_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['plan', str(DEMO.with_name('eight_models.yaml'))]) == 0
    assert 'the file has no robots: the manager begins without any' in capsys.readouterr().out


def test_plan_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / 'plan.svg'
    assert main(['plan', str(DEMO), '--svg', str(path)]) == 0
    assert path.read_text().startswith('<svg')


@pytest.mark.parametrize('command', ['plan', 'up'])
def test_bad_factory_file_is_one_line(command: str, tmp_path: Path,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, edit(tmp_path, 'capacity', 'capasity')]) == 2
    error = capsys.readouterr().err
    assert 'capasity' in error and 'capacity' in error and 'Traceback' not in error


def test_robots_that_do_not_fit_have_no_plan(tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['plan', edit(tmp_path, 'capacity: 12', 'capacity: 3')]) == 1
    # Which model's robots have no place is left open. The others' plan is shown.
    out, err = capsys.readouterr()
    assert len(re.search(r'not served: (.*)', out)[1].split()) == 2
    assert err.startswith('robion plan: over by ')
    assert 'load of pick, place: at least 2.667; room on server_0, server_1' in err
    assert sum(map(int, re.findall(r'(\d+) robots? of', err))) == 2


def test_demo_says_before_it_starts_that_robots_do_not_fit(
        capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['demo', '--robots', '25']) == 1
    assert re.match(r'robion demo: over by 1 robot of (pick|place) ', capsys.readouterr().err)


def test_demo_needs_a_second_model_for_its_robots(tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    path = edit(tmp_path, 'seed: 2', 'seed: 2\n    joints: [joint_1]')
    assert main(['demo', '--config', path]) == 2
    assert 'add one with the same cameras and joints' in capsys.readouterr().err
