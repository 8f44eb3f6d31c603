# SPDX-License-Identifier: Apache-2.0
"""What a server does before its first robot: weigh, load, and measure what is not known."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robion_ros.bench.sustained import capacity_file
from robion_ros.config import CameraConfig, FactoryConfig, ModelConfig, ServerConfig
from robion_ros.engine.capacities import Capacity
from robion_ros.engine.device import CpuDevice, Memory, open_device
from robion_ros.engine.memory import make_placement, memory_file, outline_models
from robion_ros.nodes import loading
from robion_ros.nodes.loading import Loading

FOUND = Capacity(7, 0.985, 0.123)
PICK = ModelConfig('tiny', {'a': CameraConfig()}, ('j',), 2.0, 0.2)
FACTORY = FactoryConfig(
    {'pick': PICK, 'place': replace(PICK, seed=2), 'fixed': replace(PICK, capacity=5)},
    {'s': ServerConfig(('pick', 'place', 'fixed')), 't': ServerConfig(('fixed',))})


class Log:
    """What was said, and how often it was asked whether to go on."""

    def __init__(self) -> None:
        self.info: list[str] = []
        self.warnings: list[str] = []
        self.end = False

    def check(self) -> None:
        if self.end:
            raise InterruptedError('shut down while loading')

    def load(self, factory: FactoryConfig = FACTORY, server: str = 's',
             beside: Iterable[str] = ()) -> loading.Loaded:
        return Loading(factory, server, beside, self.info.append, self.warnings.append,
                       self.check).run()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Log:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    return Log()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the models that were measured, at once and as so good."""
    asked: list[str] = []

    def measure(here: Any, server: ServerConfig, model: str, check: Any, report: Any) -> Capacity:
        asked.append(model)
        check()
        report(0.4, 90.0)
        return FOUND
    monkeypatch.setattr(loading, 'measure_capacity', measure)
    return asked


def test_figures_of_the_file_are_taken_and_the_rest_is_measured_once(log: Log,
                                                                     measured: list[str]) -> None:
    # place is as large as pick, so what holds for one holds for both.
    for _ in range(2):
        assert log.load().capacities == {'pick': 7, 'place': 7, 'fixed': 5}
    assert measured == ['pick']
    assert [capacity for capacity in capacity_file(open_device('cpu')).read().values()] == [FOUND]
    said = '\n'.join(log.info)
    assert 'pick: measuring how many robots cpu sustains, once for such a device' in said
    assert 'pick: up to 7 robots, measured at 2 Hz and 200 ms (98.50% in time, p99 123.0 ms)' in (
        said)


def test_where_all_figures_are_given_nothing_is_measured_or_kept(log: Log, measured: list[str],
                                                                 tmp_path: Path) -> None:
    assert log.load(server='t').capacities == {'fixed': 5}
    assert measured == [] and not (tmp_path / 'robion_ros').exists()


def test_a_capacity_at_another_rate_is_scaled_and_said_to_be(log: Log,
                                                             measured: list[str]) -> None:
    log.load()
    slower = replace(FACTORY, models={**FACTORY.models, 'pick': replace(PICK, rate=0.5)})
    assert log.load(slower).capacities == {'pick': 28, 'place': 7, 'fixed': 5}
    assert measured == ['pick']
    assert any('measured at 2 Hz and 200 ms, scaled to 0.5 Hz' in line for line in log.info)


def test_progress_is_logged_now_and_then(log: Log, measured: list[str],
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, 'LINE_PERIOD', 0.0)
    log.load()
    assert 'pick: measuring, 40%, about 90 s left' in log.info


def test_a_model_that_no_robot_can_have_is_warned_of(log: Log,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, 'measure_capacity', lambda *_: Capacity(0, 0.4, None))
    assert log.load().capacities == {'pick': 0, 'place': 0, 'fixed': 5}
    assert [line.partition(',')[0] for line in log.warnings] == [
        f'{model}: not even one robot is served in time: allow it a longer slo'
        for model in ('pick', 'place')]


def test_a_measurement_that_is_ended_leaves_nothing_behind(log: Log, measured: list[str]) -> None:
    log.info = Ends(log)  # type: ignore[assignment]
    with pytest.raises(InterruptedError):
        log.load()
    assert capacity_file(open_device('cpu')).read() == {}


def test_one_more_model_takes_a_capacity_that_is_known_and_is_never_measured(
        log: Log, measured: list[str]) -> None:
    def load_more(model: str) -> int:
        return Loading(FACTORY, 's', (), log.info.append, log.warnings.append,
                       log.check).load_more(CpuDevice(), model)[1]
    assert load_more('fixed') == 5
    with pytest.raises(ValueError, match=r"models\.place\.capacity: is not in the file.*'robion"):
        load_more('place')
    assert measured == [] and not any('loaded' in line for line in log.info if 'place' in line)
    log.load()
    assert load_more('place') == 7 and measured == ['pick']


def test_one_more_model_needs_memory_for_its_weights(log: Log) -> None:
    class Full(Gpu):
        def memory(self) -> Memory:
            return Memory(10, 2 * 10**9)
    with pytest.raises(ValueError, match=r'of memory left, the weights of fixed take .* unload'):
        Loading(FACTORY, 's', (), log.info.append, log.warnings.append,
                log.check).load_more(Full(), 'fixed')


class Ends(list[str]):
    """A log that ends the process when something is measured."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def append(self, line: str) -> None:
        self.log.end = 'measuring' in line


class Gpu(CpuDevice):
    """A device that computes as a CPU does and has memory of its own."""

    name = 'cuda:0'

    def memory(self) -> Memory:
        return Memory(10**9, 2 * 10**9)

    def taken(self) -> int:
        return 500_000_000


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, 'open_device', lambda name: Gpu())


@pytest.mark.usefixtures('gpu')
def test_what_was_taken_counts_at_the_next_start(log: Log, measured: list[str],
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    log.load()
    outlines = outline_models(FACTORY, 's', {})
    placement = make_placement(outlines.values(), 2, 'lockstep')
    beside = 500_000_000 - sum(one.weights for one in outlines.values())
    assert memory_file(Gpu()).read() == {placement: beside}
    assert any(line.startswith('cuda:0: 1.00 GB in use') for line in log.info)
    monkeypatch.setattr(Gpu, 'memory', lambda self: Memory(99 * 10**7, 99 * 10**7))
    with pytest.raises(ValueError, match=r'cuda:0 has 0\.99 GB; placed on it .*measured'):
        log.load()


@pytest.mark.usefixtures('gpu')
def test_a_gpu_that_is_too_small_is_refused_before_anything_is_loaded(
        log: Log, measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, 'load', lambda *_: pytest.fail('it was loaded'))
    monkeypatch.setattr(Gpu, 'memory', lambda self: Memory(10**6, 2 * 10**9))
    with pytest.raises(ValueError, match=r'only 1\.0 MB are free, .* less than s takes'):
        log.load()
    # The other server of the device counts as well, where it is on this machine.
    monkeypatch.setattr(Gpu, 'memory', lambda self: Memory(9 * 10**8, 9 * 10**8))
    with pytest.raises(ValueError, match=r'placed on it are 1\.0. GB, .*; t: weights of fixed'):
        log.load(beside=['t'])


def test_a_cpu_that_is_too_small_is_warned_of(log: Log, measured: list[str],
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuDevice, 'memory', lambda self: Memory(10**6, 10**12))
    assert log.load(server='t').capacities == {'fixed': 5}
    assert len(log.warnings) == 1 and 'only 1.0 MB are free' in log.warnings[0]


def test_neighbour_that_cannot_load_does_not_count(log: Log, measured: list[str],
                                                   tmp_path: Path) -> None:
    broken = replace(FACTORY, models={**FACTORY.models,
                                      'place': replace(PICK, checkpoint=str(tmp_path))})
    assert log.load(broken, 't', ['s']).capacities == {'fixed': 5}
    with pytest.raises(ValueError, match=r'models\.place: checkpoint '):
        log.load(broken, 's')
