# SPDX-License-Identifier: Apache-2.0
"""Which locksteps are timed; not how long they take."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from robion_ros.bench.ablation import OneStage, run_ablation, time_lockstep
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.settings import BenchError
from robion_ros.engine import graphed, partition
from robion_ros.engine.device import CpuDevice
from robion_ros.engine.pipelines import Lockstep
from robion_ros.engine.profile import Cut, Load, Pair, WHOLE


def test_every_pair_is_timed_in_every_way(prepared: Prepared) -> None:
    said: list[str] = []
    rows = list(run_ablation(prepared, 2, said.append))
    pairs = {(vlm, size, adit, other) for vlm in 'ab' for size in (1, 2) for adit in 'ab'
             for other in (1, 2)}
    for way in ('serial', 'no cap'):
        found = [(row['vlm_model'], row['vlm_batch'], row['adit_model'], row['adit_batch'])
                 for row in rows if row['way'] == way]
        assert sorted(found) == sorted(pairs)
    assert said == ['serial', 'no cap'], 'a CPU has no caps'
    for row in rows:
        assert 0 < row['p50_ms'] <= row['p99_ms'] and row['cap'] is None
        assert min(row['vlm_ms'], row['adit_ms']) > 0


def test_in_sequence_there_is_one_stage() -> None:
    device = OneStage(CpuDevice())
    assert device.stage('vlm') is device.stage('adit')
    device.stage('vlm').close()


def test_a_stage_that_fails_is_named(prepared: Prepared) -> None:
    class Failing:
        def __init__(self, model) -> None:
            self._model = model

        def __getattr__(self, name: str):
            return getattr(self._model, name)

        def adit(self, context, noise):
            raise RuntimeError('too hot')
    models = {'a': Failing(prepared.models['a'])}
    pipeline = Lockstep(models, CpuDevice())  # type: ignore[arg-type]
    with pytest.raises(BenchError, match='too hot'):
        time_lockstep(pipeline, models, Load('a', 1), Load('a', 2), 1)  # type: ignore[arg-type]
    pipeline.close()


class Graphed:
    """A model whose stages share a GPU, on the CPU."""

    def __init__(self, model) -> None:
        self._model = model
        self.ran: list[int] = []
        self.captured: set[tuple[str, int, Cut]] = set()
        self.cuts: dict[Pair, Cut] = {}
        self.default = Cut(104, 8)
        self.adit_graphs = SimpleNamespace(capture=lambda size, cut, partitions, pool:
                                           self.captured.add(('adit', size, cut)))

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def cut(self, size: int, beside: Load | None) -> Cut:
        return self.cuts.get(Pair(Load('a', size), beside), self.default) if beside else WHOLE

    def pack(self, inputs, noise):
        return {**inputs, 'noise': noise}

    def vlm_beside(self, blocks, beside: Load | None):
        self.ran.append(self.cut(len(blocks), beside).cap)
        inputs = {name: torch.stack([block[name] for block in blocks]) for name in blocks[0]}
        noise = inputs.pop('noise')
        return self._model.vlm(inputs), noise

    def adit_beside(self, context, noise, beside: Load | None):
        return self._model.adit(context, noise)

    def capture(self, size: int, cut: Cut, partitions, pool) -> None:
        self.captured.add(('vlm', size, cut))

    def keep(self, name: str, cuts) -> None:
        assert name == 'a'
        assert {(stage, load.batch, cut) for pair, cut in cuts.items()
                for stage, load in zip(('vlm', 'adit'), pair, strict=True)} <= self.captured
        self.cuts = dict(cuts)


def test_every_cap_is_timed_after_the_cut_of_the_profile(prepared: Prepared, monkeypatch) -> None:
    monkeypatch.setattr(graphed, 'GraphedModel', Graphed)
    monkeypatch.setattr(partition, 'open_partitions',
                        lambda index: SimpleNamespace(caps=(8, 72, 128), sms=132))
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, 'graph_pool_handle', lambda: 'pool')
    model = Graphed(prepared.models['a'])
    own = replace(prepared, models={'a': prepared.models['a']}, ready={'a': model})
    ways: dict[tuple[str, int | None, int | None], set[int]] = {}
    for row in run_ablation(own, 1, lambda text: None):
        ways.setdefault((row['way'], row['cap'], row.get('steps')), set()).update(model.ran)
        model.ran.clear()
    # The VLM stage that brings the tick its ADiT batch has nothing beside it: no cap.
    assert ways == {('serial', None, None): {0}, ('no cap', None, None): {0},
                    ('best cap', 104, 8): {0, 104},
                    **{('fixed cap', cap, None): {0, cap} for cap in (72, 128)}}
