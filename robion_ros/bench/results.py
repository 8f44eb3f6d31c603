# SPDX-License-Identifier: Apache-2.0
"""
The file of an evaluation: settings, machine, every row; whole after every row that was added.

Knows nothing of what the rows mean.
"""

from collections.abc import Mapping
import json
import os
from pathlib import Path
from typing import Any

from robion_ros.bench.settings import BenchError

FORMAT = 1


class Results:
    """What an evaluation has found so far, also in a file if it has a name."""

    def __init__(self, kind: str, path: str | None) -> None:
        self.found: dict[str, Any] = {'format': FORMAT, 'kind': kind, 'settings': {},
                                      'machine': {}, 'results': [], 'rows': []}
        if path and Path(path).exists() and not Path(path).is_file():
            raise BenchError(f'{path} is a device or a pipe: after every row a new file takes its '
                             'place, name a file')
        # The file behind a link is replaced, not the link.
        self._path = Path(path).resolve() if path else None

    def describe(self, settings: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
        """Say what the measurements to come depend on."""
        self.found |= {'settings': dict(settings), 'machine': dict(machine)}
        self.write()

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Add one measurement."""
        self.found['rows'].append(dict(row))
        self.write()

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Add what a number of measurements came to."""
        self.found['results'].append(dict(result))
        self.write()

    def write(self) -> None:
        """Write the file anew: who reads it, or ends the process, finds the old or the new."""
        if self._path is None:
            return
        written = self._path.with_name(f'.{self._path.name}.{os.getpid()}')
        try:
            written.write_text(dump(self.found), encoding='utf-8')
            written.replace(self._path)
        except OSError as error:
            written.unlink(missing_ok=True)
            raise BenchError(f'{self._path} cannot be written: {error.strerror}') from None


def dump(found: Mapping[str, Any]) -> str:
    """Return results as JSON, a line for each row."""
    head = {key: value for key, value in found.items() if key not in ('results', 'rows')}
    lines = [f' {json.dumps(key)}: {json.dumps(value)}' for key, value in head.items()]
    for key in ('results', 'rows'):
        rows = ',\n'.join(f'  {json.dumps(row, allow_nan=False)}' for row in found[key])
        lines.append(f' {json.dumps(key)}: [\n{rows}\n ]' if rows else f' {json.dumps(key)}: []')
    return '{\n' + ',\n'.join(lines) + '\n}\n'


def load_results(path: str) -> dict[str, Any]:
    """Read what was written; raise BenchError where it is something else."""
    try:
        found = json.loads(Path(path).read_text(encoding='utf-8'))
        if found['format'] != FORMAT:
            raise BenchError(f'{path} has format {found["format"]}, this version reads {FORMAT}')
        return {**found, 'kind': str(found['kind']), 'rows': list(found['rows'])}
    except FileNotFoundError:
        raise BenchError(f'{path}: there is no such file') from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BenchError(f'{path} is no file of robion bench ({type(error).__name__}: {error})'
                         ) from None
