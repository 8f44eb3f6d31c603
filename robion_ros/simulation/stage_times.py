# SPDX-License-Identifier: Apache-2.0
"""
What stages take, alone and beside each other, and what is made of times that were not measured.

Knows neither where times come from nor what runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from robion_ros.bench.settings import BenchError
from robion_ros.engine.lockstep_times import Durations
from robion_ros.engine.profile import Load, Pair

SHOWN = 8
"""So many times that were not measured are named."""


class Together(NamedTuple):
    """How long the two stages of a lockstep take beside each other, s."""

    vlm: float
    adit: float

    @property
    def whole(self) -> float:
        """Time of the lockstep, s."""
        return max(self)


@dataclass(frozen=True)
class StageTimes:
    """Times of batches, s. A load is of an architecture or of a model of the factory."""

    vlm: Mapping[Load, float]
    """Of VLM stages with nothing beside them."""
    adit: Mapping[Load, float]
    """Of ADiT stages with nothing beside them."""
    locksteps: Mapping[Pair, Together]
    preprocess: float = 0.0
    """Of a request, before it can wait for its VLM stage; one at a time on a server."""
    gap: float = 0.0
    """From the end of a lockstep to the start of the next, if that waits already."""
    derived: tuple[str, ...] = field(default=(), compare=False)
    """What was not measured, in words."""

    @property
    def stored(self) -> Durations:
        """What an engine on a GPU knows before its first lockstep: pairs, as in a profile."""
        return {pair: together.whole for pair, together in self.locksteps.items()}

    def note(self) -> str:
        """Return a line on what was not measured, with the first of it."""
        more = len(self.derived) - SHOWN
        return (f'not measured, derived: {", ".join(self.derived[:SHOWN])}'
                + (f' and {more} more' if more > 0 else ''))


def complete(times: StageTimes, models: Mapping[str, str], sizes: Iterable[int]) -> StageTimes:
    """
    Return the times of models, architectures by name, for every batch of sizes.

    Times may be given for the name or for the architecture. A stage alone that was not measured
    is taken to last as long as the shortest lockstep it was in, which is too long rather than too
    short. A pair takes the sum of its stages, less that part of the shorter one that other pairs
    hide. Raise BenchError where nothing is known of a batch.
    """
    known = {load.model for load in (*times.vlm, *times.adit)} | {
        load.model for pair in times.locksteps for load in pair}
    kinds = {name: name if name in known else architecture
             for name, architecture in models.items()}
    sizes = sorted(sizes)
    wanted = [Load(kind, size) for kind in dict.fromkeys(kinds.values()) for size in sizes]
    bounds = tuple({load: min((together.whole for pair, together in times.locksteps.items()
                               if pair[stage] == load), default=None) for load in wanted}
                   for stage in (0, 1))
    alone, derived = [], []
    for stage, measured, bound in zip(('VLM', 'ADiT'), (times.vlm, times.adit), bounds,
                                      strict=True):
        found = {}
        for load in wanted:
            value = measured.get(load, bound[load])
            if value is None:
                raise BenchError(f'how long the {stage} stage of {load.model} takes at batch '
                                 f'{load.batch} is not known; known are '
                                 f'{", ".join(sorted(known)) or "no models"}: add it to the '
                                 'file of times, or take a smaller max_batch')
            if load not in measured:
                derived.append(f'{stage} {load.batch} of {load.model} alone')
            found[load] = value
        alone.append(found)
    locksteps = dict(times.locksteps)
    for pair in (Pair(vlm, adit) for vlm, adit in product(wanted, wanted)):
        if pair not in locksteps:
            derived.append(f'VLM {pair.vlm.batch} of {pair.vlm.model} beside '
                           f'ADiT {pair.adit.batch} of {pair.adit.model}')
            locksteps[pair] = _estimate(pair, alone[0], alone[1], times.locksteps)

    def rename(loads: Mapping[Load, float]) -> dict[Load, float]:
        return {Load(name, size): loads[Load(kind, size)]
                for name, kind in kinds.items() for size in sizes}
    return StageTimes(rename(alone[0]), rename(alone[1]), {
        Pair(Load(name, size), Load(other, adit)):
        locksteps[Pair(Load(kind, size), Load(beside, adit))]
        for name, kind in kinds.items() for size in sizes
        for other, beside in kinds.items() for adit in sizes},
        times.preprocess, times.gap, tuple(derived))


def _estimate(pair: Pair, vlm: Mapping[Load, float], adit: Mapping[Load, float],
              measured: Mapping[Pair, Together]) -> Together:
    """Return what a pair takes by how much of the shorter stage measured pairs hide."""
    parts = {other: hidden for other, together in measured.items()
             if (hidden := _hidden(other, vlm, adit, together.whole)) is not None}
    alike = [part for other, part in parts.items()
             if (other.vlm.model, other.adit.model) == (pair.vlm.model, pair.adit.model)]
    chosen = alike or list(parts.values())
    part = sum(chosen) / len(chosen) if chosen else 0.0
    stages = vlm[pair.vlm], adit[pair.adit]
    whole = max(*stages, sum(stages) - part * min(stages))
    return Together(whole, whole)


def _hidden(pair: Pair, vlm: Mapping[Load, float], adit: Mapping[Load, float],
            whole: float) -> float | None:
    """Return the part of the shorter stage that runs beside the longer; None: not known."""
    if pair.vlm not in vlm or pair.adit not in adit:
        return None
    stages = vlm[pair.vlm], adit[pair.adit]
    return min(1.0, max(0.0, (sum(stages) - whole) / min(stages)))
