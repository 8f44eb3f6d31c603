# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/benchmarks.md run, and measure what they say; not how fast it is."""

import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / 'benchmarks').glob('*.py'))
NEED_TRITON = {'adit_kernels', 'adit_tiles', 'peers', 'stages'}


def run(name: str, *words: str) -> str:
    """Run a script; return what it has printed."""
    script, = (path for path in SCRIPTS if path.stem == name)
    # Without the clone's root in its path, whose robion_ros/ would hide the installed package.
    done = subprocess.run([sys.executable, '-P', str(script), *words], capture_output=True,
                          text=True, env={**os.environ, 'PYTHONPATH': str(script.parent)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize('name', [script.stem for script in SCRIPTS])
def test_every_script_says_how_it_is_used(name: str) -> None:
    if name in NEED_TRITON:
        pytest.importorskip('triton')
    assert 'usage: ' in run(name, '--help')


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
