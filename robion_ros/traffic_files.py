# SPDX-License-Identifier: Apache-2.0
"""
How an evaluation tells simulated robots when to observe, and they tell it what came back.

By files in a folder that both know, for processes of one machine: times are those of its
monotonic clock. Knows neither robots nor what is evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
from typing import Any

Plan = Mapping[str, Sequence[float]]
"""When each robot observes, s since the start, in order."""


@dataclass(frozen=True)
class Observed:
    """One observation and its answer; times in s of time.monotonic(), durations in s."""

    published: float
    """When its last picture left."""
    arrived: float | None = None
    """When its chunk came; None: it did not."""
    engine: float = 0.0
    """What the chunk says of its time in the engine, and in its stages."""
    vlm: float = 0.0
    adit: float = 0.0
    batch: int = 0


@dataclass(frozen=True)
class Found:
    """What became of the observations of a plan at one process."""

    robots: Mapping[str, Sequence[Observed]]
    """In the order of the plan."""
    mistakes: int
    """Chunks that were wrong or came twice."""


class TrafficFiles:
    """The files of one plan after the other, numbered from 1."""

    def __init__(self, folder: str, number: int) -> None:
        self._folder = Path(folder)
        self._number = number

    def write_plan(self, plan: Plan) -> None:
        """Say what is to be observed."""
        self._write('plan', {robot: list(times) for robot, times in plan.items()})

    def read_plan(self) -> Plan | None:
        """Return the plan once it is there."""
        plan: Plan | None = self._read('plan')
        return plan

    def write_ready(self, process: str) -> None:
        """Say that the robots of a process are connected."""
        self._write(f'ready_{process}', True)

    def is_ready(self, process: str) -> bool:
        """Return whether the robots of a process are connected."""
        return self._read(f'ready_{process}') is not None

    def write_start(self, start: float) -> None:
        """Say when the plan begins."""
        self._write('start', start)

    def read_start(self) -> float | None:
        """Return when the plan begins, s of time.monotonic(), once it is known."""
        start: float | None = self._read('start')
        return start

    def write_found(self, process: str, found: Found) -> None:
        """Say what became of a process' observations."""
        self._write(f'found_{process}', asdict(found))

    def read_found(self, process: str) -> Found | None:
        """Return what became of a process' observations, once that is known."""
        found = self._read(f'found_{process}')
        return found and Found({robot: [Observed(**item) for item in items]
                                for robot, items in found['robots'].items()}, found['mistakes'])

    def _path(self, what: str) -> Path:
        return self._folder / f'{self._number}_{what}.json'

    def _write(self, what: str, content: Any) -> None:
        path = self._path(what)
        whole = path.with_suffix('.part')
        whole.write_text(json.dumps(content))
        whole.replace(path)

    def _read(self, what: str) -> Any:
        try:
            return json.loads(self._path(what).read_text())
        except FileNotFoundError:
            return None
