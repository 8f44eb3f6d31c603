# SPDX-License-Identifier: Apache-2.0
"""A capacity is measured once for a kind of machine, kept, found again, and scaled by rate."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from time import sleep

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.config import CameraConfig, MAX_CAPACITY, ModelConfig, ServerConfig
from robion_ros.engine.capacities import (
    Capacity,
    CapacityFile,
    find,
    make_setting,
    obtain,
    scale,
    Setting,
)

SETTING = Setting('pi0 1', 0.156, 2.0, 2, 'lockstep', 'yield')
OTHERS = {'sizes': 'pi0 2', 'slo': 0.2, 'max_batch': 4, 'engine': 'monolithic', 'late': 'shed'}
KNOWN = Capacity(20, 0.985, 0.12)
RATES = st.floats(0.01, 1000)


@pytest.fixture
def file(tmp_path: Path) -> CapacityFile:
    return CapacityFile(tmp_path / 'capacities', {'gpu': 'one', 'code': '1'})


def nobody() -> None:
    raise AssertionError('nobody was to be waited for')


def test_what_was_added_is_read(file: CapacityFile) -> None:
    assert file.read() == {}
    table = {SETTING: KNOWN, replace(SETTING, slo=0.05): Capacity(0, 0.5, None),
             replace(SETTING, rate=0.1): Capacity(300, 0.99, 0.1, 0.5)}
    for setting, capacity in table.items():
        file.add(setting, capacity)
    assert file.read() == table
    file.add(SETTING, Capacity(21, 0.99, 0.1))
    assert file.read()[SETTING].robots == 21 and len(file.read()) == 3
    assert CapacityFile(file.folder, {'gpu': 'two', 'code': '1'}).read() == {}


@pytest.mark.parametrize(('old', 'new'), [
    ('"robots": 20', '"robots": -1'), ('"robots": 20', '"robots": "many"'),
    ('"robots": 20', '"robots": 1e999'), ('"attainment": 0.985', '"attainment": 7'),
    ('"p99": 0.12', '"p99": "fast"'), ('"rate": 2.0', '"rate": 0'), ('"rate": 2.0', '"rat": 2'),
    ('"slo": 0.156', '"slo": null')])
def test_a_damaged_file_holds_nothing_and_is_measured_anew(
        file: CapacityFile, old: str, new: str, caplog: pytest.LogCaptureFixture) -> None:
    file.add(SETTING, KNOWN)
    text = file.path.read_text()
    assert old in text
    file.path.write_text(text.replace(old, new))
    assert obtain(file, {'m': SETTING}, 'cpu', lambda _: KNOWN, nobody) == {'m': KNOWN}
    assert 'is measured anew' in caplog.text
    assert file.read() == {SETTING: KNOWN}


def test_the_setting_is_all_of_model_and_server_that_matters() -> None:
    model = ModelConfig('pi0', {'a': CameraConfig()}, ('j',), 2.0, 0.156)
    server = ServerConfig(('m',))
    assert make_setting('pi0 1', model, server) == SETTING
    assert make_setting('pi0 1', replace(model, seed=7, checkpoint='x', priority=3),
                        replace(server, policy='round_robin', device='cuda:3')) == SETTING
    for change in ({'rate': 1.0}, {'slo': 0.1}):
        assert make_setting('pi0 1', replace(model, **change), server) != SETTING
    for name in ('max_batch', 'engine', 'late'):
        assert make_setting('pi0 1', model, replace(server, **{name: OTHERS[name]})) != SETTING


@pytest.mark.parametrize('name', OTHERS)
def test_what_was_measured_otherwise_is_not_taken(name: str) -> None:
    assert find({replace(SETTING, **{name: OTHERS[name]}): KNOWN}, SETTING) is None
    assert find({}, SETTING) is None


def test_the_nearest_rate_is_scaled() -> None:
    table = {replace(SETTING, rate=1.0): Capacity(40, 0.99, 0.1),
             replace(SETTING, rate=8.0): Capacity(6, 0.98, 0.1)}
    assert find(table, SETTING) == Capacity(20, 0.99, 0.1, 1.0)
    assert find(table, replace(SETTING, rate=4.0)) == Capacity(12, 0.98, 0.1, 8.0)
    assert find(table, replace(SETTING, rate=8.0)) == Capacity(6, 0.98, 0.1)
    # One that would be left without robots is to be measured.
    assert find(table, replace(SETTING, rate=100.0)) is None


@given(robots=st.integers(0, MAX_CAPACITY), measured=RATES, wanted=RATES)
def test_scaled_robots_ask_no_more_often(robots: int, measured: float, wanted: float) -> None:
    scaled = scale(Capacity(robots, 1.0, None), measured, wanted)
    assert scaled.robots * wanted <= robots * measured * (1 + 1e-6) + 1e-6 * wanted
    assert (scaled.robots + 1) * wanted > robots * measured * (1 - 1e-6) or (
        scaled.robots == MAX_CAPACITY)
    assert scaled.scaled_from == measured


def test_only_what_is_unknown_is_measured_and_equal_models_once(file: CapacityFile) -> None:
    file.add(SETTING, KNOWN)
    other = replace(SETTING, slo=0.3)
    asked: list[str] = []

    def measure(model: str) -> Capacity:
        asked.append(model)
        return Capacity(30, 1.0, 0.2)
    wanted = {'a': SETTING, 'b': other, 'c': other}
    found = obtain(file, wanted, 'cuda:0', measure, nobody)
    assert asked == ['b']
    assert {model: one.robots for model, one in found.items()} == {'a': 20, 'b': 30, 'c': 30}
    assert obtain(file, wanted, 'cuda:0', measure, nobody) == found and asked == ['b']
    assert obtain(file, wanted, 'cuda:0', measure, nobody, again=True)['a'].robots == 30
    assert asked == ['b', 'a', 'b']
    assert file.read() == {SETTING: Capacity(30, 1.0, 0.2), other: Capacity(30, 1.0, 0.2)}


def together(file: CapacityFile, devices: list[str], wanted: Mapping[str, Setting],
             measure: Callable[[str, str], Capacity]) -> list[dict[str, Capacity]]:
    """Obtain the same as several processes do; a lock is each opening's own."""
    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(lambda device: obtain(
            file, wanted, device, lambda model: measure(device, model), lambda: sleep(0.002)),
            devices))


@pytest.mark.parametrize('devices', [['cuda:0', 'cuda:1', 'cuda:2'], ['cpu', 'cpu']],
                         ids=['a device each', 'one device'])
def test_who_starts_together_measures_each_once_and_a_device_one_at_a_time(
        file: CapacityFile, devices: list[str]) -> None:
    wanted = {f'm{index}': replace(SETTING, slo=0.1 + index) for index in range(5)}
    lock, busy, measured = Lock(), set[str](), list[str]()

    def measure(device: str, model: str) -> Capacity:
        with lock:
            assert device not in busy
            busy.add(device)
            measured.append(model)
        sleep(0.02)
        with lock:
            busy.remove(device)
        return Capacity(int(model[1:]) + 1, 1.0, None)
    found = together(file, devices, wanted, measure)
    assert sorted(measured) == sorted(wanted)
    assert all({model: one.robots for model, one in each.items()}
               == {f'm{index}': index + 1 for index in range(5)} for each in found)


def test_one_that_fails_leaves_the_measuring_to_others(file: CapacityFile) -> None:
    def fail(model: str) -> Capacity:
        raise InterruptedError('shut down')
    with pytest.raises(InterruptedError):
        obtain(file, {'m': SETTING}, 'cpu', fail, nobody)
    assert obtain(file, {'m': SETTING}, 'cpu', lambda _: KNOWN, nobody) == {'m': KNOWN}


def test_who_waits_can_be_ended(file: CapacityFile) -> None:
    def end() -> None:
        raise InterruptedError('shut down')
    with file.claim(repr(SETTING)), pytest.raises(InterruptedError):
        obtain(file, {'m': SETTING}, 'cpu', lambda _: KNOWN, end)
    assert file.read() == {}


def test_what_cannot_be_kept_is_used_and_said(tmp_path: Path,
                                              caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / 'taken').write_text('no folder')
    file = CapacityFile(tmp_path / 'taken', {})
    assert obtain(file, {'m': SETTING}, 'cpu', lambda _: KNOWN, nobody) == {'m': KNOWN}
    assert 'cannot be written, the next start measures again' in caplog.text
