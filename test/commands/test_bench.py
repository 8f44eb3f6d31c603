# SPDX-License-Identifier: Apache-2.0
"""`robion bench`, as somebody types it, with a model that any machine runs."""

from collections.abc import Iterator
import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest
import torch

from robion_ros.commands.arguments import run as main
from robion_ros.commands.bench_arguments import MODES

CONFIG = Path(__file__).resolve().parents[2] / 'config'
TRAFFIC = ['--device', 'cpu', '--epochs', '1', '--seconds', '0.5', '--lead', '0', '--cameras', '1',
           '--image', '64x48']
HOPELESS = ['--slo', '1', '--first', '2', '--resolution', '2']
"""A deadline that nothing meets ends a search at its first count."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as a server does, and leave the process as it was."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)


def check(path: Path, kind: str) -> dict[str, Any]:
    """Check what holds for the file of every evaluation; return it."""
    found = json.loads(path.read_text())
    assert found['kind'] == kind and found['settings']['seed'] == 0
    assert found['machine']['torch'] == torch.__version__
    for row in found['rows'] if kind != 'ablation' else ():
        assert row['sent'] == sum(row[end] for end in (
            'answered', 'superseded', 'shed', 'failed', 'cancelled', 'lost_up', 'lost_down',
            'unanswered'))
        assert row['failed'] == row['cancelled'] == row['unanswered'] == 0
        assert len(row['requests']['robot']) == row['sent'] > 0
    return found


@pytest.mark.parametrize('model', ['tiny', 'pi0_small', 'smolvla_small', 'gr00t_n1_5_small',
                                   'xiaomi_robotics_0_small'])
def test_capacity_of_every_mode(model: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / 'found.json'
    assert main(['bench', 'capacity', '--model', model, *TRAFFIC, *HOPELESS, '--json', str(path),
                 '--second-device', 'cpu', '--late', 'shed']) == 0
    found = check(path, 'capacity')
    assert [result['mode'] for result in found['results']] == list(MODES)
    assert {result['capacity'] for result in found['results']} == {0}
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ['mode', *MODES]
    assert 'seed 0' in err and 'no GPU' in err and str(path) in err


def test_sweep_over_a_network_with_plots(tmp_path: Path, capsys) -> None:
    pytest.importorskip('matplotlib')
    path = tmp_path / 'found.json'
    assert main(['bench', 'sweep', '--model', 'tiny', *TRAFFIC, '--robots', '1,3', '--slo', '500',
                 '--network', 'wifi7', '--modes', 'lockstep,stepwise', '--json', str(path),
                 '--plots', str(tmp_path)]) == 0
    found = check(path, 'sweep')
    assert [(row['mode'], row['robots']) for row in found['rows']] == [
        ('lockstep', 1), ('lockstep', 3), ('stepwise', 1), ('stepwise', 3)]
    assert (tmp_path / 'found_attainment.svg').is_file()
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_colocated_models_under_every_policy(tmp_path: Path) -> None:
    path = tmp_path / 'found.json'
    assert main(['bench', 'colocate', '--models', 'tiny*2,pi0_small', *TRAFFIC, *HOPELESS,
                 '--json', str(path)]) == 0
    found = check(path, 'colocate')
    assert [(result['deadlines'], result['policy']) for result in found['results']] == [
        (deadlines, policy) for deadlines in ('same', 'different')
        for policy in ('earliest_slo_first', 'round_robin', 'largest_queue_first')]
    assert list(found['settings']['models']) == ['tiny_1', 'tiny_2', 'pi0_small']
    assert found['rows'][-1]['slo_ms'] == pytest.approx(
        {'tiny_1': 1.0, 'tiny_2': 1.5, 'pi0_small': 2.0})


def test_simulated_capacities_of_an_h200(tmp_path: Path, capsys) -> None:
    path, traffic = tmp_path / 'found.json', ['--epochs', '1', '--seconds', '2', '--lead', '0.5']
    times = ['--times', str(CONFIG / 'h200_times.yaml')]
    assert main(['bench', 'capacity', *traffic, *times, '--first', '32', '--json',
                 str(path)]) == 0
    found = check(path, 'capacity')
    capacities = {result['mode']: result['capacity'] for result in found['results']}
    assert set(capacities) == {'lockstep', 'monolithic'}
    assert 40 < capacities['monolithic'] < capacities['lockstep'] < 75
    assert main(['bench', 'colocate', '--models', 'smolvla*4', *traffic, *times, '--first', '32',
                 '--resolution', '8', '--json', str(path)]) == 0
    assert len(check(path, 'colocate')['results']) == 6
    assert 'derived' not in capsys.readouterr().err


def test_ablation_and_plots_afterwards(tmp_path: Path, capsys) -> None:
    pytest.importorskip('matplotlib')
    path = tmp_path / 'found.json'
    assert main(['bench', 'ablation', '--model', 'tiny', '--device', 'cpu', '--repeats', '1',
                 '--json', str(path)]) == 0
    found = check(path, 'ablation')
    assert len(found['rows']) == 8
    assert 'tiny 2 beside tiny 1' in capsys.readouterr().out
    assert main(['bench', 'plot', str(path), '--plots', str(tmp_path)]) == 0
    assert (tmp_path / 'found_ways.png').is_file()


@pytest.mark.parametrize(('words', 'problem'), [
    (['capacity', '--model', 'tiny', '--device', 'cpu'], 'slo: no deadline is known for tiny'),
    (['capacity', '--device', 'cpu', '--network', 'wifi6'], "did you mean 'wifi7'"),
    (['capacity', '--device', 'cpu', '--max-batch', '3'], 'max_batch: is 3'),
    (['capacity', '--model', 'tiny', '--slo', '100', '--device', 'gpu'],
     "device: is 'gpu', must be"),
    (['capacity', '--device', 'cuda:99'], "device 'cuda:99' is not available here"),
    (['sweep', '--model', 'tiny', '--slo', '100', '--device', 'cpu', '--modes', 'split'],
     "mode 'split' cannot be measured"),
    (['plot', 'nowhere.json'], 'there is no such file'),
    (['capacity', '--times', 'nowhere.yaml'], 'nowhere.yaml'),
    (['capacity', '--times', 'nowhere.yaml', '--ros', '4'], 'give one of them'),
    (['sweep', '--times', str(CONFIG / 'h200_times.yaml'), '--modes', 'stepwise'],
     'there are lockstep, monolithic on virtual time'),
    (['capacity', '--times', str(CONFIG / 'h200_times.yaml'), '--model', 'tiny', '--slo', '100'],
     'tiny'),
], ids=['no deadline', 'network', 'batch', 'device', 'no such GPU', 'split', 'no file',
        'no times', 'times and ROS', 'not on virtual time', 'no times of the model'])
def test_what_cannot_be_measured_is_one_line(words: list[str], problem: str, capsys) -> None:
    assert main(['bench', *words]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith('robion bench: ') and problem in last


@pytest.mark.parametrize(('words', 'problem'), [
    (['capacity', '--modes', 'lockstep,looped'], "'looped' is not one of lockstep"),
    (['sweep', '--robots', '4,x'], "'4,x' is not a list like 4,8,16"),
    (['sweep', '--robots', '0'], '0 is no number of robots'),
    (['colocate', '--models', 'tiny*0'], "'tiny*0' is not like pi0 or pi0*4"),
    (['capacity', '--slo', 'fast'], "'fast' is not like 156 or pi0=156"),
    (['capacity', '--slo', '0'], 'is 0, must be from 1'),
    (['capacity', '--image', '640'], "'640' is not like 640x480"),
    (['capacity', '--late', 'never'], "invalid choice: 'never'"),
    ([], 'KIND'),
], ids=lambda value: value[-1] if isinstance(value, list) and value else None)
def test_wrong_arguments_are_named(words: list[str], problem: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(['bench', *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_nothing_of_ros_is_needed() -> None:
    """A machine with a GPU has torch, but neither ROS, nor OR-Tools, nor an installation."""
    script = """import sys
for name in ('rclpy', 'ortools', 'ament_index_python', 'matplotlib', 'robion_ros.msg',
             'robion_ros.srv', 'robion_ros.nodes', 'robion_ros.manager.program'):
    sys.modules[name] = None
from robion_ros.commands.arguments import run
sys.exit(run(sys.argv[1:]))"""
    words = ['bench', 'sweep', '--model', 'tiny', '--slo', '500', *TRAFFIC, '--robots', '1',
             '--modes', 'lockstep']
    result = subprocess.run([sys.executable, '-c', script, *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1].split()[:2] == ['lockstep', '1']


@pytest.mark.ros
def test_sweep_of_a_factory_over_ros(tmp_path: Path) -> None:
    path = tmp_path / 'found.json'
    words = ['--device', 'cpu,cpu', '--slo', '2000', '--ros', '3', '--robots', '1,3', '--modes',
             'monolithic', '--json', path]
    result = subprocess.run(
        [Path(sys.executable).with_name('robion'), 'bench', 'sweep', '--model', 'tiny', *TRAFFIC,
         *words], capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    found = check(path, 'sweep')
    assert [(row['mode'], row['robots'], row['sent'], row['answered'])
            for row in found['rows']] == [('monolithic over ROS', 1, 1, 1),
                                          ('monolithic over ROS', 3, 3, 3)]
    assert 'ROS_DOMAIN_ID=' in result.stderr


@pytest.mark.parametrize(('words', 'message'), [
    (['--robots', '4', '--ros', '3'], '--robots asks for 4, --ros allows 3: raise it'),
    (['--ros', '3', '--modes', 'stepwise'], "a server has no mode 'stepwise'; with --ros there "
                                            'are lockstep, monolithic')],
    ids=['too many', 'no such mode'])
def test_what_a_factory_cannot_do_is_said_before_it_starts(words, message, capsys) -> None:
    assert main(['bench', 'sweep', '--model', 'tiny', *TRAFFIC, '--slo', '100', *words]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_of_plots_that_cannot_be_made_is_said_before_measuring(
        tmp_path: Path, capsys) -> None:
    (tmp_path / 'file').touch()
    assert main(['bench', 'ablation', '--device', 'cpu', '--model', 'tiny', '--plots',
                 str(tmp_path / 'file')]) == 2
    assert 'cannot be made' in capsys.readouterr().err
