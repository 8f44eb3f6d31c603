# SPDX-License-Identifier: Apache-2.0
"""
Times of locksteps by the batches that meet: in sequence, beside each other, under every cap.

Ticks of the product's own pipeline are timed as the device sees them, from the start of the first
stage to the end of the last. Knows neither traffic nor deadlines.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import median
import sys
from time import monotonic
from typing import Any

import numpy as np

from robion_ros.bench.drive import SWITCH_INTERVAL
from robion_ros.bench.modes import uncapped
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.settings import BenchError
from robion_ros.core import Dropped, Outcome
from robion_ros.engine.batch import Batch, batch_sizes
from robion_ros.engine.device import Stage, Stages
from robion_ros.engine.in_flight import conclude, InFlight
from robion_ros.engine.pipelines import Guarded, Lockstep, Pipeline
from robion_ros.engine.profile import Cut, Load, Pair
from robion_ros.engine.warm_up import example
from robion_ros.models.protocol import Model

WARM_UPS = 3
SERIAL, NO_CAP, BEST_CAP, FIXED_CAP = 'serial', 'no cap', 'best cap', 'fixed cap'


class OneStage:
    """A device whose stages are all the same one: what a lockstep launches runs in sequence."""

    def __init__(self, device: Stages) -> None:
        self._device = device
        self._stage: Stage | None = None
        self.lead = device.lead

    def stage(self, name: str) -> Stage:
        """Return the one stage."""
        if self._stage is None:
            self._stage = self._device.stage(name)
        return self._stage


def run_ablation(prepared: Prepared, repeats: int,
                 say: Callable[[str], None]) -> Iterator[Mapping[str, Any]]:
    """
    Yield a row for each pair of batches of each pair of models, and each way of running it.

    The caps of the prepared models are not what they were afterwards.
    """
    yield from run_ways(prepared, repeats, say)
    if is_capped(prepared):
        yield from run_fixed_caps(prepared, repeats, say)


def is_capped(prepared: Prepared) -> bool:
    """Return whether the stages of prepared models can be kept from crowding out each other."""
    return any(isinstance(model, Guarded) for model in prepared.ready.values())


def run_ways(prepared: Prepared, repeats: int,
             say: Callable[[str], None]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of the ways that leave caps as they are: all but fixed caps."""
    sys.setswitchinterval(SWITCH_INTERVAL)  # On a CPU stages wait for Python, too.
    ways: list[tuple[str, Pipeline]] = [
        (SERIAL, Lockstep(uncapped(prepared.ready), OneStage(prepared.device))),
        (NO_CAP, Lockstep(uncapped(prepared.ready), prepared.device))]
    if is_capped(prepared):
        ways.append((BEST_CAP, Lockstep(prepared.ready, prepared.device)))
    for way, pipeline in ways:
        say(way)
        for vlm, adit in pairs(prepared):
            yield {**time_lockstep(pipeline, prepared.ready, vlm, adit, repeats), 'way': way,
                   **(find_cut(prepared, vlm, adit) if way == BEST_CAP else {'cap': None})}
        pipeline.close()


def run_fixed_caps(prepared: Prepared, repeats: int,
                   say: Callable[[str], None]) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each pair of batches under each cap that the profiler tries."""
    import torch

    from robion_ros.engine.graphed import GraphedModel
    from robion_ros.engine.partition import open_partitions
    from robion_ros.engine.profiler import tried_caps
    partitions = open_partitions(torch.device(prepared.device.name).index or 0)
    models = {name: model for name, model in prepared.ready.items()
              if isinstance(model, GraphedModel)}
    sizes = batch_sizes(prepared.max_batch)
    if partitions is None:
        return
    pipeline = Lockstep(models, prepared.device)
    for cap in tried_caps(partitions):
        say(f'cap of {cap}')
        cut = Cut(cap)
        pools = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
        with torch.cuda.device(prepared.device.name):
            for name, model in models.items():
                for size in sizes:
                    model.capture(size, cut, partitions, pools[0])
                    model.adit_graphs.capture(size, cut, partitions, pools[1])
                model.keep(name, {Pair(vlm, adit): cut for vlm, adit in pairs(prepared)})
        for vlm, adit in pairs(prepared):
            yield {**time_lockstep(pipeline, prepared.ready, vlm, adit, repeats),
                   'way': FIXED_CAP, 'cap': cap}
    pipeline.close()


def pairs(prepared: Prepared) -> list[tuple[Load, Load]]:
    """Return what can meet in a lockstep: VLM load and ADiT load."""
    loads = [Load(name, size) for name in prepared.ready
             for size in reversed(batch_sizes(prepared.max_batch))]
    return [(vlm, adit) for vlm in loads for adit in loads]


def find_cut(prepared: Prepared, vlm: Load, adit: Load) -> dict[str, int | None]:
    """Return the cut that a prepared model takes; cap None for none."""
    from robion_ros.engine.graphed import GraphedModel
    model = prepared.ready[vlm.model]
    if not isinstance(model, GraphedModel):
        return {'cap': None}
    cut = model.cut(vlm.batch, adit)
    return {'cap': cut.cap or None, 'steps': cut.steps or None}


def time_lockstep(pipeline: Pipeline, models: Mapping[str, Model], vlm: Load, adit: Load,
                  repeats: int) -> dict[str, Any]:
    """Time ticks of a pair of loads and the stages in them; return percentiles, ms."""
    tickets = {load: (example(load.model, models[load.model]),) * load.batch
               for load in (vlm, adit)}
    times, vlm_times, adit_times = [], [], []
    for _ in range(WARM_UPS + repeats):
        outcomes = list[Outcome]()
        in_flight = pipeline.tick(Batch(adit.model, tickets[adit], monotonic()), None,
                                  outcomes.append)
        in_flight = pipeline.tick(Batch(vlm.model, tickets[vlm], monotonic()), in_flight,
                                  outcomes.append)
        assert in_flight is not None and in_flight.entering is not None
        conclude(in_flight, outcomes.append)
        times.append(in_flight.seconds)
        vlm_times.append(in_flight.entering.vlm.result().seconds)
        for outcome in outcomes:
            if isinstance(outcome, Dropped):
                raise BenchError(f'{vlm} beside {adit}: {outcome.detail}')
            adit_times.append(outcome.timings.adit)
        following: InFlight | None = in_flight
        while following:
            following = pipeline.tick(None, following, lambda outcome: None)
    p50, p99 = np.percentile(times[WARM_UPS:], (50, 99)).tolist()
    return {'vlm_model': vlm.model, 'vlm_batch': vlm.batch, 'adit_model': adit.model,
            'adit_batch': adit.batch, 'p50_ms': round(p50 * 1e3, 3),
            'p99_ms': round(p99 * 1e3, 3), 'vlm_ms': round(median(vlm_times) * 1e3, 3),
            'adit_ms': round(median(adit_times) * 1e3, 3)}
