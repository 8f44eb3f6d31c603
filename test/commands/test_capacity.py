# SPDX-License-Identifier: Apache-2.0
"""`robion capacity` and the plans that need it, as somebody types them."""

from collections.abc import Sequence
from contextlib import suppress
import json
import os
from pathlib import Path
import platform
import signal
import subprocess
import sys
from time import sleep

from hypothesis import given
from hypothesis import strategies as st
import pytest
import torch

from robion_ros.bench.settings import BenchError
from robion_ros.commands import capacities, capacity, measuring
from robion_ros.commands.arguments import run as main
from robion_ros.commands.capacities import Wanted
from robion_ros.commands.measuring import divide, expect, Job
from robion_ros.engine.capacities import Capacity, CapacityFile, Setting
from robion_ros.engine.profile import Progress

FACTORY = """
models:
  pick: &arm
    architecture: tiny
    cameras: [front]
    joints: [a]
    rate: 20.0
    slo: 0.001
  place: {<<: *arm, seed: 2}
  large: {<<: *arm, joints: [a, b], cameras: [front, back]}
  fixed: {<<: *arm, capacity: 5}
servers:
  server_0: {models: [pick, place]}
  server_1: {models: [large, fixed]}
robots: {pick: 3, fixed: 2}
"""
FOUND = Capacity(8, 0.99, 0.0009)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


@pytest.fixture
def factory(tmp_path: Path) -> str:
    path = tmp_path / 'factory.yaml'
    path.write_text(FACTORY)
    return str(path)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Return the jobs that processes were given; what they find is kept as they do it."""
    done: list[Job] = []

    def measure(some: Sequence[Job], report: Progress) -> dict[tuple[str, str], Capacity]:
        done.extend(some)
        for job in some:
            for wanted in job.wanted.values():
                wanted.file.add(wanted.setting, FOUND)
        return {place: FOUND for job in some for place in job.wanted}
    monkeypatch.setattr(capacity, 'measure_all', measure)
    return done


def table(capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], str]:
    """Return the rows by model and server: robots, in time, p99, and the words after it."""
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ' '.join(lines[0]) == ('model server device rate, Hz slo, ms robots in time p99, ms '
                                  'from')
    rows = {}
    for words in lines[1:]:
        if words[0] != 'kept':
            at = next(index for index, word in enumerate(words) if word in ('20', '40'))
            rows[words[0], words[1]] = ' '.join(words[at + 2:])
    return rows


def test_what_is_not_in_the_file_is_measured_once(factory: str, jobs: list[Job],
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['capacity', factory]) == 0
    # place is as large as pick; fixed has a figure; all are on one device.
    [job] = jobs
    assert (job.device, list(job.wanted), job.again) == (
        'cpu', [('server_0', 'pick'), ('server_1', 'large')], False)
    now = '8 99.0% 0.9 measured now'
    assert table(capsys) == {
        ('pick', 'server_0'): now, ('place', 'server_0'): now, ('large', 'server_1'): now,
        ('fixed', 'server_1'): '5 - - the factory file'}
    assert main(['capacity', factory]) == 0
    assert len(jobs) == 1
    assert table(capsys)['place', 'server_0'] == '8 99.0% 0.9 measured before'
    assert main(['capacity', factory, '--again', '--server', 'server_1']) == 0
    assert list(jobs[1].wanted) == [('server_1', 'large')] and jobs[1].again
    assert set(table(capsys)) == {('large', 'server_1'), ('fixed', 'server_1')}


def test_a_model_that_is_named_is_measured_though_the_file_has_a_figure(
        factory: str, jobs: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['capacity', factory, '--models', 'fixed']) == 0
    assert table(capsys) == {
        ('fixed', 'server_1'): '8 99.0% 0.9 measured now, but the factory file says 5'}
    # What was found is also that of models like it, but the figure stays.
    assert main(['capacity', factory, '--server', 'server_0']) == 0
    assert len(jobs) == 1


def test_another_rate_is_scaled_unless_again(factory: str, jobs: list[Job],
                                             capsys: pytest.CaptureFixture[str]) -> None:
    main(['capacity', factory])
    Path(factory).write_text(FACTORY.replace('rate: 20.0', 'rate: 40.0'))
    capsys.readouterr()
    assert main(['capacity', factory, '--models', 'pick']) == 0
    assert table(capsys)['pick', 'server_0'] == '4 99.0% 0.9 scaled from 20 Hz'
    assert main(['capacity', factory, '--models', 'pick', '--again']) == 0
    assert table(capsys)['pick', 'server_0'] == '8 99.0% 0.9 measured now'


def test_plan_needs_what_is_not_known_and_says_how_to_have_it(
        factory: str, jobs: list[Job], tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['plan', factory]) == 2
    error = capsys.readouterr().err
    assert error.startswith('robion plan: models.pick.capacity: is not in the file, and was not '
                            'measured for server_0 (cpu) on this machine')
    assert f"run 'robion capacity {factory}'" in error and error.count('\n') == 1
    main(['capacity', factory])
    capsys.readouterr()
    path = tmp_path / 'plan.json'
    assert main(['plan', factory, '--json', str(path)]) == 0
    out = capsys.readouterr().out
    assert ('capacities as measured: 8 of pick on server_0, 8 of place on server_0, 8 of large on '
            'server_1') in out
    plan = json.loads(path.read_text())['servers']
    assert [server['load'] for server in plan.values()] == ['3/8', '2/5']
    assert plan['server_1']['capacities'] == {'large': 8, 'fixed': 5}


def test_plan_shows_the_memory_that_servers_take(factory: str, jobs: list[Job],
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    main(['capacity', factory])
    capsys.readouterr()
    assert main(['plan', factory]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ['device', 'server', 'model', 'memory'] in lines
    assert ['cpu', 'server_1', 'large', '4.4', 'MB'] in lines
    assert ' '.join(lines[-2][2:]) == 'graphs and buffers, estimated 0.50 GB'
    assert lines[-1][:3] == ['memory', 'of', 'cpu:']


def test_demo_of_a_file_without_capacities_needs_them(
        factory: str, jobs: list[Job], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['demo', '--config', factory]) == 2
    assert 'robion capacity' in capsys.readouterr().err


@pytest.mark.parametrize(('words', 'problem'), [
    (['--server', 'server_3'], "--server: 'server_3' is not a valid server; did you mean 'server"),
    (['--models', 'pick,plaice'], "--models: 'plaice' is not a valid model; did you mean 'place'"),
])
def test_what_is_not_in_the_file_is_named(factory: str, words: list[str], problem: str,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['capacity', factory, *words]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_a_device_of_another_machine_is_named(factory: str,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    Path(factory).write_text(FACTORY.replace('[large, fixed]', '[large, fixed], device: cuda:1'))
    assert main(['capacity', factory]) == 2
    assert "robion capacity: servers.server_1: device 'cuda:1' is not" in capsys.readouterr().err


def test_processes_measure_and_keep(factory: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A deadline of 1 ms is met by nobody, wherever this runs."""
    words = ['--models', 'pick,large', '--epochs', '1', '--seconds', '0.2']
    assert main(['capacity', factory, *words]) == 0
    rows = table(capsys)
    assert set(rows) == {('pick', 'server_0'), ('large', 'server_1')}
    assert all(row.startswith('0 ') and row.endswith(' measured now') for row in rows.values())
    places = [('server_0', 'pick'), ('server_1', 'large')]
    asked = capacities.ask(capacity.load(factory), places)
    assert [one.known().robots for one in asked.values()] == [0, 0]  # type: ignore[union-attr]


def test_what_goes_wrong_in_a_process_is_said(factory: str,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    loaded = capacity.load(factory)
    [wanted] = capacities.ask(loaded, [('server_0', 'pick')]).values()
    job = Job(loaded, 'cuda:99', {('server_0', 'pick'): wanted}, False, 1, 0.2)
    with pytest.raises(BenchError, match='on cuda:99: BenchError: device'):
        measuring.measure_all([job], lambda part, left: None)


def test_nobody_measures_for_one_that_was_killed(factory: str) -> None:
    [wanted] = capacities.ask(capacity.load(factory), [('server_0', 'pick')]).values()
    with wanted.file.claim(f'{platform.node()} cpu'):  # So its process will wait for this one.
        before = len(list((wanted.file.folder / 'claims').iterdir()))
        process = subprocess.Popen(
            [sys.executable, '-c', 'import sys; from robion_ros.commands.arguments import run; '
             'run(sys.argv[1:])', 'capacity', factory, '--models', 'pick'],
            stdout=subprocess.PIPE, start_new_session=True)
        try:
            while len(list((wanted.file.folder / 'claims').iterdir())) == before:
                assert process.poll() is None
                sleep(0.05)
            process.kill()
            # Nothing more comes when all that could write have ended.
            assert process.communicate(timeout=60)[0] == b''
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def make_wanted(device: str, kind: str, slo: float) -> Wanted:
    return Wanted(device, kind, CapacityFile(Path('x'), {'gpu': kind}),
                  Setting('tiny', slo, 2.0, 2, 'lockstep', 'yield'))


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.3]))))
def test_each_device_has_a_part_and_equal_ones_are_in_one(places: list[tuple[int, float]]) -> None:
    wanted = {(f's{index}', 'm'): make_wanted(f'cuda:{device}', 'small' if device < 2 else 'large',
                                              slo) for index, (device, slo) in enumerate(places)}
    parts = divide(wanted)
    given_out = [(device, one) for device, part in parts.items() for one in part.values()]
    assert sorted(str(one.key) for _, one in given_out) == sorted(
        {str(one.key) for one in wanted.values()})
    kinds = {one.device: one.kind for one in wanted.values()}
    assert all(kinds[device] == one.kind for device, one in given_out)
    for kind in set(kinds.values()):
        loads = [len(parts.get(device, {})) for device in kinds if kinds[device] == kind]
        assert max(loads) - min(loads) <= 1


def test_models_to_come_take_as_long_as_the_one_that_is_measured() -> None:
    assert expect(1, 0.5, 30.0) == 30.0
    assert expect(3, 0.5, 30.0) == 30.0 + 2 * 60.0
    assert expect(0, 0.0, 0.0) == expect(2, 0.0, 0.0) == 0.0
