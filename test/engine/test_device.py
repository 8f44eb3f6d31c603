# SPDX-License-Identifier: Apache-2.0
"""Stages keep their own order and run beside each other."""

import gc
import threading
from threading import Barrier, Event, get_ident
from weakref import ref

import pytest
import torch

from robion_ros.engine.device import (
    CpuStage,
    free_memory,
    freeze_memory,
    open_device,
    Prepared,
)


@pytest.fixture
def stages():
    device = open_device('cpu')
    opened = [device.stage('vlm'), device.stage('adit')]
    yield opened
    for stage in opened:
        stage.close()


def test_stage_runs_in_order(stages) -> None:
    seen: list[int] = []
    for number in range(50):
        last = stages[0].launch(lambda number=number: seen.append(number))
    last.result()
    assert seen == list(range(50))


def test_launch_returns_at_once_and_result_waits(stages) -> None:
    go = Event()
    pending = stages[0].launch(lambda: go.wait(20))
    go.set()
    value, seconds = pending.result()
    assert value and seconds >= 0


def test_stages_run_side_by_side(stages) -> None:
    meet = Barrier(2, timeout=20)
    both = [stage.launch(meet.wait) for stage in stages]
    assert sorted(pending.result().value for pending in both) == [0, 1]


def test_error_comes_with_the_result_and_the_stage_goes_on(stages) -> None:
    def fail() -> None:
        raise ValueError('no such weight')
    failed, after = stages[0].launch(fail), stages[0].launch(lambda: 'next')
    with pytest.raises(ValueError, match='no such weight'):
        failed.result()
    assert after.result().value == 'next'


def test_stage_keeps_one_thread_and_one_core(stages) -> None:
    idents = {stages[0].launch(get_ident).result().value for _ in range(5)}
    assert len(idents) == 1
    assert stages[0].launch(torch.get_num_threads).result().value == 1


def test_stage_makes_no_gradients(stages) -> None:
    weight = torch.ones(2, requires_grad=True)
    assert not stages[0].launch(lambda: weight * 2).result().value.requires_grad


def test_close_finishes_what_was_launched_and_ends_the_thread() -> None:
    stage = CpuStage('brief')
    pending = [stage.launch(lambda number=number: number) for number in range(5)]
    stage.close()
    assert [each.result().value for each in pending] == [0, 1, 2, 3, 4]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith('brief')]


def test_cpu_runs_models_as_they_are(kit) -> None:
    models = {'m': kit.Fake()}
    assert open_device('cpu').prepare(models, 4, True) == Prepared(models)


@pytest.mark.parametrize('name', ['cuda', 'cuda:0', 'cuda:99'])
def test_gpu_that_is_not_there_is_named(name: str) -> None:
    if torch.cuda.is_available() and name != 'cuda:99':
        pytest.skip('it is there')
    with pytest.raises(ValueError, match=f"device '{name}' is not available here"):
        open_device(name)


@pytest.mark.parametrize('name', ['tpu', 'cpu:0', ''])
def test_unknown_device_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"device '{name}'.*'cpu'"):
        open_device(name)


def test_collections_do_not_look_at_what_is_frozen_until_it_is_freed(kit) -> None:
    model = kit.Fake()
    model.itself, seen = model, ref(model)
    try:
        freeze_memory()
        # All modules are frozen: what is left has come since.
        assert 10 * len(gc.get_objects()) < gc.get_freeze_count()
        del model
        gc.collect()
        assert seen() is not None
    finally:
        free_memory()
    assert seen() is None and not gc.get_freeze_count()
