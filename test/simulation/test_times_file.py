# SPDX-License-Identifier: Apache-2.0
"""Stage times as they stand in files and profiles."""

from itertools import product
import json
import os
from pathlib import Path

import pytest

from robion_ros.bench.results import Results
from robion_ros.bench.settings import BenchError
from robion_ros.engine.profile import Load, Pair, ProfileFile
from robion_ros.factory_file import ConfigError
from robion_ros.simulation.stage_times import Together
from robion_ros.simulation.times_file import load_profile, load_times

H200 = Path(__file__).resolve().parents[2] / 'config' / 'h200_times.yaml'
ONE, TWO = Load('pi0', 1), Load('pi0', 2)


def test_the_example_holds_what_was_measured() -> None:
    times = load_times(str(H200))
    models = {load.model for load in times.vlm}
    assert models == {'pi0', 'pi05', 'smolvla', 'gr00t_n1_5', 'xiaomi_robotics_0'}
    loads = [Load(model, size) for model in models for size in (1, 2)]
    for vlm, adit in product(loads, loads):
        # Together a VLM and an ADiT batch take longer than either, and less than both in turn.
        whole = times.locksteps[Pair(vlm, adit)].whole
        alone = times.vlm[vlm], times.adit[adit]
        assert max(alone) < whole < sum(alone)
    assert times.vlm[TWO] == pytest.approx(0.0142) and times.gap == pytest.approx(0.00004)
    assert times.locksteps[Pair(TWO, TWO)] == pytest.approx((0.0169 * 1.03, 0.01707 * 1.03))


def test_json_of_the_same_form_is_read(tmp_path: Path) -> None:
    path = tmp_path / 'times.json'
    path.write_text(json.dumps({
        'stages': {'m': {'vlm': {'1': 5}, 'adit': {'1': 3}}}, 'preprocess_ms': 2,
        'locksteps': [{'vlm_model': 'm', 'vlm_batch': 1, 'adit_model': 'm', 'adit_batch': 1,
                       'ms': 6, 'adit_ms': 4}]}))
    times = load_times(str(path))
    assert times.vlm == {Load('m', 1): 0.005} and times.preprocess == 0.002
    assert times.locksteps == {Pair(Load('m', 1), Load('m', 1)): Together(0.006, 0.004)}


def row(way: str, vlm: int, adit: int, whole: float, vlm_ms: float, adit_ms: float) -> dict:
    return {'vlm_model': 'pi0', 'vlm_batch': vlm, 'adit_model': 'pi0', 'adit_batch': adit,
            'way': way, 'cap': None, 'p50_ms': whole, 'p99_ms': whole, 'vlm_ms': vlm_ms,
            'adit_ms': adit_ms}


def test_an_ablation_gives_stages_alone_and_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / 'ablation.json'
    results = Results('ablation', str(path))
    for each in (row('serial', 1, 1, 13.5, 8.0, 5.0), row('serial', 1, 2, 14.5, 8.2, 6.0),
                 row('serial', 2, 1, 20, 15.0, 5.2), row('no cap', 1, 1, 12, 12, 11),
                 row('best cap', 1, 1, 10.9, 10.7, 8.0), row('fixed cap', 1, 1, 30, 30, 8)):
        results.add_row(each)
    times = load_times(str(path))
    assert times.vlm == pytest.approx({ONE: 0.0081, TWO: 0.015})
    assert times.adit == pytest.approx({ONE: 0.0051, TWO: 0.006})
    assert times.locksteps == {Pair(ONE, ONE): Together(0.0109, 0.008)}


def test_without_caps_side_by_side_is_what_runs(tmp_path: Path) -> None:
    path = tmp_path / 'ablation.json'
    results = Results('ablation', str(path))
    results.add_row(row('no cap', 1, 1, 12, 11, 12))
    assert load_times(str(path)).locksteps == {Pair(ONE, ONE): Together(0.011, 0.012)}


def test_other_files_of_bench_are_refused(tmp_path: Path) -> None:
    path = tmp_path / 'sweep.json'
    Results('sweep', str(path)).write()
    with pytest.raises(BenchError, match='is of robion bench sweep, which times no stages'):
        load_times(str(path))


@pytest.mark.parametrize(('text', 'problem'), [
    ('stages: {m: {vlm: {x: 1}, adit: {1: 1}}}', ':1: stages.m.vlm.x: is no batch size'),
    (f"stages: {{m: {{vlm: {{? {'9' * 5000} : 1}}, adit: {{1: 1}}}}}}", 'is no batch size'),
    ('stages: {m: {vlm: {1: 0}, adit: {1: 1}}}', 'stages.m.vlm.1: is 0.0, must be from 0.001'),
    ('stages: {m: {vlm: {1: 1}}}', 'stages.m: lacks adit'),
    ('stages: {}\ngap_ms: -1', 'gap_ms: is -1'),
    ('stages: {}\nbusy: -0.1', 'busy: is -0.1'),
    ('stages: {}\nlocksteps: [{vlm_model: m, vlm_batch: 1, adit_model: m, adit_batch: 1, ms: 2, '
     'adit_ms: 3}]', r'locksteps\[0\].adit_ms: is 3.0, must be from 0 to 2.0'),
    ('', 'is empty; write stages'),
])
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / 'times.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_times(str(path))


@pytest.mark.parametrize(('change', 'problem'), [
    ({'vlm_ms': 1e9}, 'vlm_ms: is 1000000000.0'), ({'adit_ms': 0}, 'adit_ms: is 0, must be from'),
    ({'p50_ms': -1}, 'ms: is -1'), ({'vlm_batch': 0}, 'vlm_batch: is 0'),
    ({'vlm_ms': None}, 'TypeError'), ({'vlm_model': []}, 'TypeError')])
def test_an_ablation_with_wrong_values_is_refused(tmp_path: Path, change: dict,
                                                  problem: str) -> None:
    path = tmp_path / 'ablation.json'
    Results('ablation', str(path)).add_row({**row('serial', 1, 1, 13.5, 8.0, 5.0), **change})
    with pytest.raises(BenchError, match=f'is no file of robion bench ablation .*{problem}'):
        load_times(str(path))


def store(folder: Path, gpu: str, shapes: str, time: float, code: str = 'x') -> ProfileFile:
    file = ProfileFile(folder, {'gpu': gpu, 'code': code})
    loads = [Load(shapes, size) for size in (1, 2)]
    file.add({Pair(vlm, adit): {0: time * vlm.batch, 64: 0.9 * time * vlm.batch}
              for vlm in loads for adit in loads})
    return file


def test_the_only_profile_is_taken_under_its_best_caps(tmp_path: Path) -> None:
    store(tmp_path, 'NVIDIA H200', 'pi0: images uint8 [1]', 0.01)
    (tmp_path / 'other.json').write_text('{"no": "profile"}')
    (tmp_path / 'deep.json').write_text('[' * 100_000)
    name, times = load_profile(tmp_path, None)
    assert name == 'NVIDIA H200'
    assert times.locksteps[Pair(TWO, ONE)].whole == pytest.approx(0.018)
    assert len(times.locksteps) == 4


def test_the_newest_profile_of_the_gpu_that_is_named_is_taken(tmp_path: Path) -> None:
    old = store(tmp_path, 'NVIDIA H200', 'pi0: a', 0.02, code='old')
    os.utime(old.path, (1, 1))
    store(tmp_path, 'NVIDIA H200', 'pi0: a', 0.01, code='new')
    store(tmp_path, 'NVIDIA L4', 'pi0: a', 0.1)
    name, times = load_profile(tmp_path, 'h200')
    assert name == 'NVIDIA H200'
    assert times.locksteps[Pair(ONE, ONE)].whole == pytest.approx(0.009)
    with pytest.raises(BenchError, match='has profiles of NVIDIA H200, NVIDIA L4; name one'):
        load_profile(tmp_path, None)


def test_of_several_shapes_the_slowest_count(tmp_path: Path) -> None:
    file = store(tmp_path, 'GPU', 'pi0: one camera', 0.01)
    slow = [Load('pi0: three cameras', size) for size in (1, 2)]
    file.add({Pair(vlm, adit): {0: 0.05} for vlm in slow for adit in slow})
    _, times = load_profile(tmp_path, None)
    assert {together.whole for together in times.locksteps.values()} == {0.05}


def test_without_a_profile_the_mend_is_said(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match='has none; measure one with robion profile where'):
        load_profile(tmp_path, None)
