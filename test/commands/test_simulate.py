# SPDX-License-Identifier: Apache-2.0
"""`robion simulate`, as somebody types it."""

import json
from pathlib import Path
import re
import subprocess
import sys

import pytest

from robion_ros.commands.arguments import run as main
from robion_ros.engine.profile import Load, Pair, ProfileFile, WHOLE

CONFIG = Path(__file__).resolve().parents[2] / 'config'
FLEET = ['simulate', str(CONFIG / 'fleet.yaml')]
TIMES = ['--times', str(CONFIG / 'h200_times.yaml')]


def test_a_fleet_survives_a_server(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'fleet.json'
    assert main([*FLEET, *TIMES, '--servers', '4', '--population', 'pi0=120', '--seconds', '10',
                 '--kill', 'gpu_3@4:8', '--population', 'pi0=130@6', '--planning', '0.1',
                 '--json', str(path)]) == 0
    out, err = capsys.readouterr()
    assert 'derived' not in err and str(path) in err
    assert 'gpu_3 died' in out and 'gpu_3 came back' in out and '4 servers, ' in out
    found = json.loads(path.read_text())
    assert found['kind'] == 'simulation' and found['settings']['servers'] == 4
    assert list(found['servers']) == ['gpu', 'gpu_2', 'gpu_3', 'gpu_4']
    assert found['models']['pi0']['robots_at_first'] == 120
    assert [plan['why'] for plan in found['results']] == [
        ['start'], ['gpu_3 died'], ['130 robots'], ['gpu_3 came back']]
    assert 0.95 < found['all']['attainment'] < 1.0
    assert found['all']['sent'] == sum(found['all'][end] for end in (
        'answered', 'superseded', 'shed', 'failed', 'cancelled', 'lost_up', 'lost_down',
        'unanswered'))


def test_what_does_not_fit_is_said(capsys) -> None:
    assert main([*FLEET, *TIMES, '--population', 'pi0=65', '--seconds', '2']) == 0
    out, err = capsys.readouterr()
    assert 'over by 10 robots of pi0' in err
    (line,) = [line for line in out.splitlines() if ' start ' in line]
    assert line.split()[3:5] == ['65', '10']


def test_a_factory_without_robots_is_said(capsys) -> None:
    assert main(['simulate', str(CONFIG / 'eight_models.yaml'), *TIMES, '--seconds', '1']) == 0
    out, err = capsys.readouterr()
    assert '--population MODEL=N' in err and '100.00 ' not in out
    assert 'derived' not in err  # All pairs were measured.


def test_times_that_are_derived_are_named_and_not_all_of_them(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'times.yaml'
    text = (CONFIG / 'h200_times.yaml').read_text()
    path.write_text(re.sub(r'\n- [{]vlm_model: pi05.*', '', text))
    assert main(['simulate', str(CONFIG / 'eight_models.yaml'), '--times', str(path),
                 '--seconds', '1']) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines()
               if 'measured, derived' in line]
    assert 'VLM 1 of pi05 beside ADiT 2 of pi0, ' in line
    assert line.endswith(' and 12 more') and line.count(',') < 10


def test_a_picture_is_drawn(tmp_path: Path, capsys) -> None:
    pytest.importorskip('matplotlib').rcParams['svg.fonttype'] = 'none'
    path = tmp_path / 'fleet.json'
    assert main([*FLEET, *TIMES, '--seconds', '3', '--json', str(path), '--plots',
                 str(tmp_path)]) == 0
    text = (tmp_path / 'fleet_timeline.svg').read_text()
    assert 'robots without a server' in text and 'h200_times.yaml' in text
    (tmp_path / 'again').mkdir()
    assert main(['bench', 'plot', str(path), '--plots', str(tmp_path / 'again')]) == 0
    assert (tmp_path / 'again' / 'fleet_timeline.png').stat().st_size > 0


def test_the_stored_profile_is_taken(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert main([*FLEET, '--seconds', '2']) == 2
    assert 'measure one with robion profile' in capsys.readouterr().err
    loads = [Load('pi0: shapes', size) for size in (1, 2)]
    ProfileFile(tmp_path / 'robion_ros' / 'profiles', {'gpu': 'NVIDIA H200'}).add(
        {Pair(vlm, adit): {WHOLE: 0.01 * vlm.batch} for vlm in loads for adit in loads})
    assert main([*FLEET, '--seconds', '2']) == 0
    err = capsys.readouterr().err
    assert 'stage times: profile of NVIDIA H200' in err and 'VLM 1 of pi0 alone' in err
    assert main([*FLEET, '--seconds', '2', '--gpu', 'L4']) == 2
    assert 'has profiles of NVIDIA H200; measure one' in capsys.readouterr().err


@pytest.mark.parametrize(('words', 'problem'), [
    (['--kill', 'gpu'], "'gpu' is not like server_1@20"),
    (['--population', 'pi0'], "'pi0' is not like pick=120"),
    (['--seconds', '0'], 'is 0, must be from 1'),
    (['--gpu', 'H200'], 'not allowed with argument --times'),
], ids=['kill', 'population', 'seconds', 'gpu'])
def test_wrong_arguments_are_named(words: list[str], problem: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*FLEET, *TIMES, *words])
    assert ended.value.code == 2 and problem in capsys.readouterr().err


@pytest.mark.parametrize(('words', 'problem'), [
    (['--kill', 'gpu_2@1'], "robion simulate: kill: 'gpu_2' is not a valid server"),
    (['--population', 'pi=3'], "'pi' is not a valid model; did you mean 'pi0'?"),
    (['--network', 'wifi9'], "'wifi9' is not a valid network"),
])
def test_what_the_factory_has_not_is_named(words: list[str], problem: str, capsys) -> None:
    assert main([*FLEET, *TIMES, *words]) == 2
    assert problem in capsys.readouterr().err


def test_capacities_that_nobody_wrote_down_are_named(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'fleet.yaml'
    path.write_text((CONFIG / 'fleet.yaml').read_text().replace('capacity: 55', ''))
    assert main(['simulate', str(path), *TIMES]) == 2
    assert 'models.pi0.capacity: is not in the file' in capsys.readouterr().err


def test_models_without_times_are_named(capsys) -> None:
    assert main(['simulate', str(CONFIG / 'demo.yaml'), *TIMES]) == 2
    assert ('VLM stage of tiny takes at batch 1 is not known; known are gr00t_n1_5'
            in capsys.readouterr().err)


def test_copies_of_servers_have_names_of_their_own(tmp_path: Path, capsys) -> None:
    path = tmp_path / 'fleet.yaml'
    gpu = "  gpu: {models: [pi0], device: 'cuda:0'}\n"
    text = (CONFIG / 'fleet.yaml').read_text()
    path.write_text(text.replace(gpu, gpu + gpu.replace('gpu:', 'gpu_2:')))
    assert main(['simulate', str(path), *TIMES, '--seconds', '1', '--servers', '5']) == 0
    assert '5 servers, ' in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_said_before_the_run(tmp_path: Path, capsys) -> None:
    pytest.importorskip('matplotlib')
    (tmp_path / 'file').touch()
    assert main([*FLEET, *TIMES, '--plots', str(tmp_path / 'file')]) == 2
    out, err = capsys.readouterr()
    assert not out and 'cannot be made: File exists' in err


def test_a_picture_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch, capsys) -> None:
    figure = pytest.importorskip('matplotlib.figure')

    def full(*arguments: object, **how: object) -> None:
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(figure.Figure, 'savefig', full)
    assert main([*FLEET, *TIMES, '--seconds', '1', '--plots', str(tmp_path)]) == 2
    assert '_timeline.png cannot be written: No space left' in capsys.readouterr().err


def test_what_does_not_fit_into_memory_is_not_begun(capsys) -> None:
    assert main([*FLEET, *TIMES, '--population', 'pi0=100000', '--seconds', '86400']) == 2
    assert '--seconds: 86400 s are 1.73e+10 requests' in capsys.readouterr().err


def test_it_needs_no_ros() -> None:
    script = ('import sys; sys.modules["rclpy"] = None; '
              'from robion_ros.commands.arguments import run; '
              f'sys.exit(run({[*FLEET, *TIMES, "--seconds", "1"]!r}))')
    assert subprocess.run([sys.executable, '-c', script], capture_output=True).returncode == 0
