# SPDX-License-Identifier: Apache-2.0
"""`robion profile` on a GPU that is made up, and what it says where there is none."""

from pathlib import Path

import pytest
import torch

from robion_ros.commands import profile
from robion_ros.commands.arguments import run as main
from robion_ros.engine.profile import Cut, Load, Pair, WHOLE

EXAMPLE = str(Path(__file__).resolve().parents[2] / 'config' / 'factory.yaml')
TABLE = {Pair(Load('pick', 2), Load('place', 1)): {WHOLE: 0.020, Cut(64, 7): 0.016,
                                                    Cut(128): 0.018},
         Pair(Load('pick', 1), Load('place', 1)): {WHOLE: 0.010, Cut(64): 0.016,
                                                    Cut(128): 0.012}}


class Gpu:
    """Writes down what it is asked to profile."""

    def __init__(self, name: str, known: bool) -> None:
        self.name, self.known, self.asked = name, known, []

    def profile(self, models, max_batch, again, report):
        self.asked.append((sorted(models), max_batch, again))
        if again or not self.known:
            report(1.0, 0.0)
        return Path('/cache/profile.json'), TABLE


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, Gpu]:
    """Make GPUs up; nothing is known of the second."""
    found: dict[str, Gpu] = {}

    def open_device(name: str) -> Gpu:
        return found.setdefault(name, Gpu(name, name == 'cuda:0'))
    monkeypatch.setattr(profile, 'open_device', open_device)
    monkeypatch.setattr(profile.registry, 'load', lambda config, device: (config, device))
    return found


def test_table_says_what_a_cap_gains_and_where_it_is_kept(
        gpus: dict[str, Gpu], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['profile', EXAMPLE, '--server', 'gpu_0']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'gpu_0, cuda:0: loading pick, place'
    assert [line.split() for line in lines[3:5]] == [
        ['pick', '2', 'place', '1', '64', '7', '16.00', '20.00', '1.250'],
        ['pick', '1', 'place', '1', '-', '-', '10.00', '10.00', '1.000']]
    assert lines[5] == 'measured before, kept in /cache/profile.json'
    assert gpus['cuda:0'].asked == [(['pick', 'place'], 2, False)]


def test_every_server_with_a_gpu_is_profiled(gpus: dict[str, Gpu],
                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['profile', EXAMPLE]) == 0
    out = capsys.readouterr().out
    assert [name for name, gpu in gpus.items() if gpu.asked] == ['cuda:0', 'cuda:1']
    assert 'measured before, kept' in out and '100%, 0 s left\n' in out
    assert 'measured now, kept' in out


def test_again_measures_what_is_known(gpus: dict[str, Gpu],
                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['profile', EXAMPLE, '--server', 'gpu_0', '--again']) == 0
    assert gpus['cuda:0'].asked[0][2] and 'measured now' in capsys.readouterr().out


@pytest.mark.parametrize(('words', 'problem'), [
    ([EXAMPLE, '--server', 'gpu_7'], "'gpu_7' is not a valid server; did you mean 'gpu_"),
    ([EXAMPLE.replace('factory.yaml', 'demo.yaml')], 'servers: none to profile: only a server'),
], ids=['no such server', 'no GPU asked for'])
def test_server_that_cannot_be_profiled_is_named(words: list[str], problem: str,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['profile', *words]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count('\n') == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_machine_without_a_gpu_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['profile', EXAMPLE]) == 2
    error = capsys.readouterr().err
    assert error.startswith("robion profile: servers.gpu_0: device 'cuda:0' is not available here")
    assert 'finds no GPU' in error and 'Traceback' not in error
