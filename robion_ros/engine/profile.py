# SPDX-License-Identifier: Apache-2.0
"""
The table of cuts: how a VLM batch and an ADiT batch best share a GPU's SMs, found by trying.

Kept in a file, so that a machine measures what can meet on it once. Knows neither graphs nor
models: a load is the shapes of a model, or its name, and a batch size.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import product
import logging
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from robion_ros.engine.machine_file import cache_folder, MachineFile

logger = logging.getLogger(__name__)

HOPELESS = 1.5
"""A cap whose first run takes so many times the best is not tried again."""


class Load(NamedTuple):
    """What a stage runs."""

    model: str
    batch: int


class Pair(NamedTuple):
    """Two loads that meet in a lockstep."""

    vlm: Load
    adit: Load


class Cut(NamedTuple):
    """
    How the SMs of a GPU are shared in a lockstep.

    Written as 'cap', or as 'cap/steps' where the ADiT stage leaves its part.
    """

    cap: int
    """SMs of the VLM stage; the others are the ADiT stage's. 0: either may use all."""
    steps: int = 0
    """Denoising steps after which the ADiT stage uses all SMs, as the VLM stage has ended; 0:
    it never does."""

    def __str__(self) -> str:
        return f'{self.cap}/{self.steps}' if self.steps else str(self.cap)

    @classmethod
    def parse(cls, text: str) -> 'Cut':
        """Read what str() gives."""
        return cls(*map(int, text.split('/')))


WHOLE = Cut(0)
"""The cut that is none."""


class Ends(NamedTuple):
    """When the two stages of a lockstep ended after its start, s."""

    vlm: float
    adit: float


Times = Mapping[Cut, float]
"""Time of a lockstep by cut, s."""
Table = Mapping[Pair, Times]
Progress = Callable[[float, float], None]
"""Hears the part that is done, 0 to 1, and how long the rest will take, s."""


def best(times: Times) -> Cut:
    """Return the cut with the shortest lockstep."""
    return min(times, key=lambda cut: times[cut])


def measure_all(pairs: Sequence[Pair], caps: Sequence[int], measure: Callable[[Pair, Cut], Ends],
                steps: Callable[[Load], int] = lambda load: 0, repeats: int = 5,
                report: Progress | None = None) -> dict[Pair, Times]:
    """
    Measure every pair under every cap; each time is the median of repeats.

    steps tells how many denoising steps a load has, 0 if they cannot be parted. Where they can,
    and the ADiT stage ends last, it is also tried to let it leave its part when the VLM stage
    ends.
    """
    found: dict[Pair, dict[Cut, float]] = {pair: {} for pair in pairs}
    start = monotonic()
    for tried, (pair, cap) in enumerate(product(pairs, caps), 1):
        times = found[pair]

        def time(cut: Cut, pair: Pair = pair, times: dict[Cut, float] = times) -> Ends:
            ends = measure(pair, cut)
            if not times or max(ends) <= HOPELESS * min(times.values()):
                ends = sorted((measure(pair, cut) for _ in range(repeats)), key=max)[repeats // 2]
            times[cut] = max(ends)
            return ends
        for cut in leavings(cap, time(Cut(cap)), steps(pair.adit)):
            time(cut)
        part = tried / (len(pairs) * len(caps))
        left = (monotonic() - start) * (1 / part - 1)
        if report:
            report(part, left)
        if tried % len(caps):
            continue
        logger.info('profile %d/%d, %.0f s left: batch %d of %s beside %d of %s takes %.1f ms '
                    'under a cap of %s', tried // len(caps), len(pairs), left, pair.vlm.batch,
                    pair.vlm.model.split(':')[0], pair.adit.batch, pair.adit.model.split(':')[0],
                    times[best(times)] * 1e3, best(times))
    return dict(found)


def leavings(cap: int, ends: Ends, steps: int) -> Sequence[Cut]:
    """Return cuts whose ADiT stage leaves its part about when the VLM stage ends."""
    if not cap or ends.adit <= ends.vlm:
        return ()
    done = int(steps * ends.vlm / ends.adit)
    return [Cut(cap, count) for count in (done, done + 1) if 0 < count < steps]


class ProfileFile(MachineFile):
    """The tables of one kind of machine, in a file of their own."""

    def read(self) -> dict[Pair, Times]:
        """Return what was measured on this machine; a file that cannot be read is no table."""
        return dict(self.parse(_parse))

    def add(self, table: Table) -> None:
        """Write a table beside what stands in the file."""
        self.rewrite(lambda: [
            {'vlm': pair.vlm, 'adit': pair.adit, 'best': str(best(times)),
             'times': {str(cut): time for cut, time in times.items()}}
            for pair, times in (self.read() | dict(table)).items()])


def default_folder() -> Path:
    """Return where profiles are kept."""
    return cache_folder('profiles')


def code_version(*sources: Path) -> str:
    """Return what changes with any of the sources: files, or all files of folders."""
    digest = blake2b(digest_size=8)
    for source in sources:
        for path in sorted(source.rglob('*')) if source.is_dir() else [source]:
            if path.is_file() and path.suffix != '.pyc':
                name = path.relative_to(source.parent).as_posix()
                digest.update(name.encode() + b'\0' + path.read_bytes())
    return digest.hexdigest()


def _parse(row: Mapping[str, Any]) -> tuple[Pair, Times]:
    loads = [Load(str(model), int(batch)) for model, batch in (row['vlm'], row['adit'])]
    times = {Cut.parse(cut): float(time) for cut, time in row['times'].items()}
    if not times or min(times.values()) <= 0:
        raise ValueError(f'row of {loads} has no times')
    return Pair(*loads), times
