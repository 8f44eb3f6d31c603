# SPDX-License-Identifier: Apache-2.0
"""
What was measured on a kind of machine, as rows of a JSON file that a person can read.

Processes may read and add at any time, and divide the measuring among themselves. Knows nothing
of what the rows mean.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, ExitStack
from dataclasses import dataclass
import fcntl
from hashlib import blake2b
import json
import logging
import os
from pathlib import Path
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar('T')
Row = Mapping[str, Any]


@dataclass(frozen=True)
class MachineFile:
    """The rows of one kind of machine with one set of programs, in a file of their own."""

    folder: Path
    machine: Mapping[str, str]
    """Device, driver, torch, code: whatever changes times."""

    @property
    def path(self) -> Path:
        """Where the rows stand."""
        return self.folder / f'{digest(json.dumps(dict(self.machine), sort_keys=True))}.json'

    def parse(self, parse: Callable[[Any], T]) -> list[T]:
        """Return all rows as parse makes them; of a file that cannot be read, none."""
        try:
            values = json.loads(self.path.read_text(encoding='utf-8'))
            return list(map(parse, values['rows']))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError,
                RecursionError) as error:
            logger.warning('%s is measured anew, it cannot be read (%s: %s)', self.path,
                           type(error).__name__, error)
            return []

    def rewrite(self, change: Callable[[], Iterable[Row]]) -> None:
        """
        Replace the rows by what change returns, which may read them; a reader finds old or new.

        Nobody else adds rows meanwhile, so none is lost.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # The folder, since the file is replaced.
        with _locked(self.folder):
            text = json.dumps({'machine': dict(self.machine), 'rows': list(change())}, indent=1)
            written = self.path.with_suffix(f'.{os.getpid()}')
            try:
                written.write_text(f'{text}\n', encoding='utf-8')
                written.replace(self.path)
            except OSError:
                written.unlink(missing_ok=True)
                raise

    @contextmanager
    def claim(self, what: str) -> Iterator[bool]:
        """
        Yield whether nobody else has claimed what, which is the caller's until the end.

        Where nothing can be written, and nobody can be met, it is everybody's.
        """
        place = self.folder / 'claims' / digest(what)
        with ExitStack() as stack:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
                stack.enter_context(_locked(place, fcntl.LOCK_NB))
                mine = True
            except BlockingIOError:
                mine = False
            except OSError:
                mine = True
            yield mine


def cache_folder(name: str) -> Path:
    """Return where files of a kind are kept."""
    cache = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    return Path(cache) / 'robion_ros' / name


def digest(text: str) -> str:
    """Return a name for a text of any length."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


@contextmanager
def _locked(place: Path, flags: int = 0) -> Iterator[None]:
    """Hold a lock, which ends with the process at the latest."""
    file = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(file)
