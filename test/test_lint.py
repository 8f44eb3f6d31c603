# SPDX-License-Identifier: Apache-2.0
"""The linter and the type checker find nothing; pyproject.toml says what they look for."""

from pathlib import Path
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize('command', [['ruff', 'check', '--quiet'], ['mypy']], ids=lambda c: c[0])
def test_tool_finds_nothing(command: list[str]) -> None:
    result = subprocess.run([sys.executable, '-m', *command], cwd=ROOT,
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
