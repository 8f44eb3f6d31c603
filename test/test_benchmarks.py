# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/benchmarks.md run, and measure what they say; not how fast it is."""

import json
import os
from pathlib import Path
import subprocess
import sys
from time import monotonic
from typing import Any

from paced import GROWTH, Paced
import pytest
import torch

SCRIPTS = [path for path in
           sorted((Path(__file__).resolve().parents[1] / 'benchmarks').glob('*.py'))
           if '__main__' in path.read_text()]


def start(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    script, = (path for path in SCRIPTS if path.stem == name)
    # Without the clone's root in its path, whose robion_ros/ would hide the installed package.
    return subprocess.run([sys.executable, '-P', str(script), *words], capture_output=True,
                          text=True, env={**os.environ, 'PYTHONPATH': str(script.parent)})


def run(name: str, *words: str) -> str:
    """Run a script that ends well; return what it has printed."""
    done = start(name, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize('name', [script.stem for script in SCRIPTS])
def test_every_script_says_how_it_is_used(name: str) -> None:
    assert 'usage: ' in run(name, '--help')


@pytest.mark.parametrize('name', ['adit_kernels', 'adit_tiles', 'peers', 'stages'])
def test_what_a_script_needs_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    done = start(name)
    assert done.returncode == 2
    assert done.stderr == f'{name}.py: needs a GPU of NVIDIA, torch for CUDA, and triton\n'


def test_a_gpu_is_not_held_up() -> None:
    done = start('simulation', '--device', 'cuda:0', '--pace', '30', '20')
    assert done.returncode == 2 and 'stages on cuda:0 cannot be held up' in done.stderr


def test_paced_stages_take_no_less_than_their_time() -> None:
    nothing: Any = None
    model = Paced(nothing, 0.03, 0.04, GROWTH)
    for size, vlm, adit in ((1, 0.03, 0.04), (2, 0.05, 0.05)):
        begin, rows = monotonic(), torch.zeros(size, 1)
        context = model.vlm({'rows': rows})
        middle = monotonic()
        assert model.adit(context, rows) is rows
        assert middle - begin >= vlm and monotonic() - middle >= adit


@pytest.mark.ros
def test_pictures_that_are_taken_in_and_locksteps_are_counted(
        own_domain: None, tmp_path: Path) -> None:
    run('ingest', '--robots', '4', '--cameras', '1', '--seconds', '3', '--repeats', '1',
        '--stages', '12,10', '--json', str(tmp_path / 'found.json'))
    figures = json.loads((tmp_path / 'found.json').read_text())['median']
    assert figures['messages_per_s'] >= 4 * 2
    assert figures['lockstep_ms']['p50'] >= 12, 'no stage is shorter than it was told to be'


def test_rules_for_what_is_late_are_compared(tmp_path: Path) -> None:
    run('late_rules', '--seconds', '2', '--seeds', '1', '--json', str(tmp_path / 'found.json'))
    assert json.loads((tmp_path / 'found.json').read_text())
