# SPDX-License-Identifier: Apache-2.0
"""Pictures of results: that they are drawn, and what stands in them."""

from pathlib import Path
import sys
from typing import Any

import pytest

from robion_ros.bench.evaluate import Evaluation, Way
from robion_ros.bench.plots import draw, telling_count
from robion_ros.bench.results import Results
from robion_ros.bench.settings import BenchError, Traffic

SETTINGS = {'models': {'pi0': 'pi0'}, 'max_batch': 2, 'seed': 0, 'epochs': 2, 'seconds': 1.0,
            'network': 'none', 'late': 'serve', 'target': 0.98, 'rate': 2.0, 'repeats': 3}
MACHINE = {'gpus': {'cuda:0': {'name': 'Some GPU'}}, 'cpu': 'some', 'torch': '2', 'code': 'x',
           'time': 'now'}


@pytest.fixture
def measure(kit):
    """Return a function that measures ways of known limits."""
    def run(kind: str, *labels: dict[str, str]) -> dict[str, Any]:
        results = Results(kind, None)
        results.describe(SETTINGS, MACHINE)
        evaluation = Evaluation(Traffic(epochs=2, seconds=1.0, lead=0.0), None, results,
                                lambda text: None, lambda text: None)

        def way(names: dict[str, str], limit: int) -> Way:
            ideal = kit.Ideal(lambda robots: 0.05 if robots <= limit else 0.2)
            return Way(names, ideal.open, {'m': 0.1})
        ways = [way(names, 6 + index) for index, names in enumerate(labels)]
        if kind == 'sweep':
            evaluation.sweep(ways, (2, 6, 12))
        else:
            for each in ways:
                evaluation.find_capacity(each)
        return results.found
    return run


def text_of(path: Path) -> str:
    return path.read_text()


@pytest.fixture(autouse=True)
def words_in_svg() -> None:
    """Keep words in SVG as words, so that they can be looked for."""
    pytest.importorskip('matplotlib').rcParams['svg.fonttype'] = 'none'


def test_a_sweep_shows_modes_target_deadline_and_machine(measure, tmp_path: Path) -> None:
    found = measure('sweep', {'mode': 'lockstep', 'policy': 'p'}, {'mode': 'split', 'policy': 'p'})
    paths = draw(found, tmp_path / 'new', 'found')
    assert sorted(path.name for path in paths) == sorted(
        f'found_{what}{suffix}' for what in ('attainment', 'latency', 'distribution')
        for suffix in ('.png', '.svg'))
    assert all(path.stat().st_size > 5000 for path in paths)
    attainment = text_of(tmp_path / 'new/found_attainment.svg')
    for words in ('lockstep', 'split (two devices)', 'target: 98 %', 'pi0', 'Some GPU',
                  '2 epochs of 1 s', 'within the deadline, %'):
        assert words in attainment
    assert 'deadline: 100 ms' in text_of(tmp_path / 'new/found_latency.svg')
    assert 'Latency with 6 robots' in text_of(tmp_path / 'new/found_distribution.svg')


def test_shared_devices_show_policies_and_deadlines(measure, tmp_path: Path) -> None:
    labels = [{'mode': 'lockstep', 'policy': policy, 'deadlines': deadlines}
              for policy in ('round_robin', 'earliest_slo_first')
              for deadlines in ('same', 'different')]
    draw(measure('colocate', *labels), tmp_path, 'found')
    capacity = text_of(tmp_path / 'found_capacity.svg')
    for words in ('round_robin', 'earliest_slo_first', 'same deadlines', 'different deadlines'):
        assert words in capacity
    assert 'lockstep' not in capacity


def test_capacity_is_written_on_its_bar(measure, tmp_path: Path) -> None:
    draw(measure('capacity', {'mode': 'lockstep', 'policy': 'p'}), tmp_path, 'found')
    assert '>6<' in text_of(tmp_path / 'found_capacity.svg')


def lockstep(way: str, cap: int | None, time: float) -> dict[str, Any]:
    return {'vlm_model': 'm', 'vlm_batch': 2, 'adit_model': 'm', 'adit_batch': 1, 'way': way,
            'cap': cap, 'p50_ms': time, 'p99_ms': time, 'vlm_ms': 1.0, 'adit_ms': 1.0}


@pytest.mark.parametrize('caps', [(), (8, 64, 104)], ids=['no caps', 'caps'])
def test_ablation_shows_caps_where_there_are_some(caps: tuple[int, ...], tmp_path: Path) -> None:
    rows = [lockstep('serial', None, 30.0), lockstep('no cap', None, 25.0),
            *(lockstep('fixed cap', cap, 100.0 / cap + 20) for cap in caps)]
    paths = draw({'kind': 'ablation', 'settings': SETTINGS, 'machine': MACHINE, 'results': [],
                  'rows': rows}, tmp_path, 'found')
    assert {path.name for path in paths} == {
        f'found_{what}{suffix}' for what in (('ways', 'caps') if caps else ('ways',))
        for suffix in ('.png', '.svg')}
    if caps:
        assert 'VLM 2 beside ADiT 1' in text_of(tmp_path / 'found_caps.svg')


def test_without_matplotlib_the_mend_is_named(measure, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    with pytest.raises(BenchError, match='pip install matplotlib'):
        draw(measure('capacity', {'mode': 'lockstep', 'policy': 'p'}), tmp_path, 'found')


def test_nothing_measured_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match='nothing to draw'):
        draw({'kind': 'sweep', 'rows': []}, tmp_path, 'found')


def test_the_count_whose_distribution_tells_most() -> None:
    def row(mode: str, robots: int, passes: bool) -> dict[str, Any]:
        return {'mode': mode, 'policy': 'p', 'robots': robots, 'passes': passes}
    rows = [row('lockstep', 4, True), row('lockstep', 8, True), row('lockstep', 16, False),
            row('split', 4, True), row('split', 8, False), row('split', 16, False)]
    assert telling_count(rows) == 8
    assert telling_count(rows[2:3]) == 16
