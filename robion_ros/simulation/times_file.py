# SPDX-License-Identifier: Apache-2.0
"""
Where stage times are read: files written by hand or by `robion bench ablation`, and profiles.

Knows neither which models will run nor how.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
import re
from statistics import median
from typing import Any

from robion_ros.bench.results import load_results
from robion_ros.bench.settings import BenchError
from robion_ros.config import check_range, FieldError
from robion_ros.engine.profile import Load, Pair, ProfileFile, Times
from robion_ros.factory_file import read
from robion_ros.simulation.stage_times import StageTimes, Together

EXAMPLE = 'share/robion_ros/config/h200_times.yaml is an example'
LONGEST = 60_000
"""Of a stage, ms."""


@dataclass(frozen=True)
class Stages:
    """What the stages of a model or an architecture take alone, by batch size, ms."""

    vlm: Mapping[str, float]
    adit: Mapping[str, float]

    def __post_init__(self) -> None:
        for stage in ('vlm', 'adit'):
            for size, time in getattr(self, stage).items():
                if not re.fullmatch('[1-9][0-9]{0,3}', size):
                    raise FieldError(f'{stage}.{size}', 'is no batch size, must be a number from '
                                     '1 to 9999')
                check_range(f'{stage}.{size}', time, 0.001, LONGEST)


@dataclass(frozen=True)
class Lockstep:
    """What a VLM batch beside an ADiT batch takes."""

    vlm_model: str
    vlm_batch: int
    adit_model: str
    adit_batch: int
    ms: float
    """From the start of both stages to the end of the longer one."""
    vlm_ms: float = 0.0
    """Of it the VLM stage; 0: all of it."""
    adit_ms: float = 0.0
    """Of it the ADiT stage, after which its chunks leave; 0: all of it."""

    def __post_init__(self) -> None:
        check_range('vlm_batch', self.vlm_batch, 1, 4096)
        check_range('adit_batch', self.adit_batch, 1, 4096)
        check_range('ms', self.ms, 0.001, LONGEST)
        check_range('vlm_ms', self.vlm_ms, 0, self.ms)
        check_range('adit_ms', self.adit_ms, 0, self.ms)


@dataclass(frozen=True)
class TimesFile:
    """What a file of stage times holds."""

    stages: Mapping[str, Stages]
    locksteps: tuple[Lockstep, ...] = ()
    preprocess_ms: float = 0.0
    """Of a request, on the one thread of a server that does it."""
    gap_ms: float = 0.0
    """Between two locksteps."""
    busy: float = 0.0
    """By what part locksteps of both stages last longer than here, as on a busy server."""

    def __post_init__(self) -> None:
        check_range('preprocess_ms', self.preprocess_ms, 0, LONGEST)
        check_range('gap_ms', self.gap_ms, 0, LONGEST)
        check_range('busy', self.busy, 0, 10)


def load_times(path: str) -> StageTimes:
    """Read a file of stage times, or what `robion bench ablation --json` has written."""
    if Path(path).suffix == '.json' and _is_of_bench(path):
        found = load_results(path)
        if found['kind'] != 'ablation':
            raise BenchError(f'{path} is of robion bench {found["kind"]}, which times no stages; '
                             'robion bench ablation does')
        try:
            return from_ablation(found['rows'])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BenchError(f'{path} is no file of robion bench ablation '
                             f'({type(error).__name__}: {error})') from None
    file = read(TimesFile, path, EXAMPLE)
    longer = 1 + file.busy
    return StageTimes(
        {Load(name, int(size)): time / 1e3 for name, stages in file.stages.items()
         for size, time in stages.vlm.items()},
        {Load(name, int(size)): time / 1e3 for name, stages in file.stages.items()
         for size, time in stages.adit.items()},
        {Pair(Load(row.vlm_model, row.vlm_batch), Load(row.adit_model, row.adit_batch)):
         _together(*(longer * time for time in (row.ms, row.vlm_ms or row.ms,
                                                row.adit_ms or row.ms)))
         for row in file.locksteps},
        file.preprocess_ms / 1e3, file.gap_ms / 1e3)


def from_ablation(rows: Sequence[Mapping[str, Any]]) -> StageTimes:
    """
    Return what an ablation has timed.

    Stages in sequence are stages alone; side by side is what a server does: with the cap of the
    profile where there are caps.
    """
    vlm: dict[Load, list[float]] = {}
    adit: dict[Load, list[float]] = {}
    pairs: dict[str, dict[Pair, Together]] = {}
    for row in rows:
        lockstep = Lockstep(*(row[key] for key in (
            'vlm_model', 'vlm_batch', 'adit_model', 'adit_batch', 'p50_ms')))
        pair = Pair(Load(lockstep.vlm_model, lockstep.vlm_batch),
                    Load(lockstep.adit_model, lockstep.adit_batch))
        for stage in ('vlm_ms', 'adit_ms'):
            check_range(stage, row[stage], 0.001, LONGEST)
        if row['way'] == 'serial':
            vlm.setdefault(pair.vlm, []).append(row['vlm_ms'] / 1e3)
            adit.setdefault(pair.adit, []).append(row['adit_ms'] / 1e3)
        else:
            pairs.setdefault(row['way'], {})[pair] = _together(
                row['p50_ms'], row['vlm_ms'], row['adit_ms'])
    return StageTimes({load: median(times) for load, times in vlm.items()},
                      {load: median(times) for load, times in adit.items()},
                      pairs.get('best cap') or pairs.get('no cap') or {})


def load_profile(folder: Path, gpu: str | None) -> tuple[str, StageTimes]:
    """
    Return a GPU's name and the times in the newest of its profiles.

    gpu is a part of the name; None: there must be one GPU alone. Raise BenchError where there is
    no such profile, or several GPUs are meant.
    """
    found: dict[str, list[ProfileFile]] = {}
    for path in sorted(folder.glob('*.json'), key=lambda path: path.stat().st_mtime):
        if file := _open(path):
            found.setdefault(file.machine.get('gpu', 'unknown'), []).append(file)
    names = [name for name in found if gpu is None or gpu.lower() in name.lower()]
    if len(names) != 1:
        known = f'profiles of {", ".join(sorted(found))}' if found else 'none'
        raise BenchError(f'{folder} has {known}; '
                         + ('name one of these GPUs with --gpu' if len(found) > 1 else
                            'measure one with robion profile where there is a GPU, or give '
                            'times with --times, such as config/h200_times.yaml'))
    (name,) = names
    table = found[name][-1].read()
    return name, from_profile(table)


def from_profile(table: Mapping[Pair, Times]) -> StageTimes:
    """
    Return the times of a profile: pairs under their best caps.

    Loads there are shapes of models; of several shapes of an architecture the slowest count.
    """
    best = {pair: min(times.values()) for pair, times in table.items()}
    slowest: dict[str, str] = {}
    for pair in sorted(best, key=lambda pair: best[pair]):
        if pair.vlm.model == pair.adit.model:
            slowest[_architecture(pair.vlm)] = pair.vlm.model
    shapes = set(slowest.values())
    return StageTimes({}, {}, {
        Pair(*(Load(_architecture(load), load.batch) for load in pair)): Together(time, time)
        for pair, time in best.items() if {load.model for load in pair} <= shapes})


def _architecture(load: Load) -> str:
    return load.model.partition(':')[0]


def _open(path: Path) -> ProfileFile | None:
    """Return a profile; None for a file that is none."""
    try:
        machine = json.loads(path.read_text(encoding='utf-8'))['machine']
        file = ProfileFile(path.parent, {str(key): str(value) for key, value in machine.items()})
        return file if file.path == path else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_of_bench(path: str) -> bool:
    try:
        return 'rows' in json.loads(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _together(whole: float, vlm: float, adit: float) -> Together:
    """Return times given in ms, the longer stage as long as the whole."""
    return (Together(whole / 1e3, adit / 1e3) if vlm >= adit
            else Together(vlm / 1e3, whole / 1e3))
