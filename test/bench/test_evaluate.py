# SPDX-License-Identifier: Apache-2.0
"""What is measured, and in which order, by a serving whose limits are known."""

from dataclasses import replace
import json
from pathlib import Path

import pytest

from robion_ros.bench.evaluate import Evaluation, spread_deadlines, Way
from robion_ros.bench.results import load_results, Results
from robion_ros.bench.settings import Traffic


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results('capacity', str(tmp_path / 'found.json'))


@pytest.fixture
def evaluation(results: Results) -> Evaluation:
    return Evaluation(Traffic(epochs=2, seconds=1.0, lead=0.0), None, results,
                      lambda text: None, lambda text: None)


def way(kit, mode: str, limit: int) -> Way:
    ideal = kit.Ideal(lambda robots: 0.05 if robots <= limit else 0.2)
    return Way({'mode': mode, 'policy': 'p'}, ideal.open, {'m': 0.1})


@pytest.mark.parametrize('limit', [0, 1, 3, 4, 13, 40])
def test_capacity_is_the_limit(kit, evaluation: Evaluation, results: Results,
                               limit: int) -> None:
    assert evaluation.find_capacity(way(kit, 'lockstep', limit)) == limit
    (result,) = results.found['results']
    assert (result['mode'], result['capacity']) == ('lockstep', limit)
    assert (result['row'] is None) == (limit == 0)
    counts = [row['robots'] for row in results.found['rows']]
    assert len(set(counts)) == len(counts) and limit + 1 in counts


def test_a_capacity_that_may_be_larger_says_so(kit, evaluation: Evaluation, results: Results,
                                               ) -> None:
    limited = replace(evaluation, most=10)
    assert limited.find_capacity(way(kit, 'lockstep', 40)) == 10
    assert evaluation.find_capacity(way(kit, 'monolithic', 40)) == 40
    assert [result['limited'] for result in results.found['results']] == [True, False]


def test_sweep_measures_every_way_with_every_count(kit, evaluation: Evaluation,
                                                   results: Results) -> None:
    evaluation.sweep([way(kit, 'lockstep', 9), way(kit, 'monolithic', 5)], (2, 6, 12))
    rows = {(row['mode'], row['robots']): row['attainment'] for row in results.found['rows']}
    assert rows == {('lockstep', 2): 1, ('lockstep', 6): 1, ('lockstep', 12): 0,
                    ('monolithic', 2): 1, ('monolithic', 6): 0, ('monolithic', 12): 0}
    assert all(len(row['epochs']) == 2 for row in results.found['rows'])


def test_sweep_finds_its_counts_around_the_limit_of_the_first(kit, evaluation: Evaluation,
                                                              results: Results) -> None:
    evaluation.sweep([way(kit, 'lockstep', 20), way(kit, 'monolithic', 10)])
    for mode in ('lockstep', 'monolithic'):
        counts = {row['robots'] for row in results.found['rows'] if row['mode'] == mode}
        assert {5, 10, 15, 18, 20, 22, 25, 30, 40} <= counts
    assert results.found['results'] == []
    assert not any(row['decided_early'] for row in results.found['rows'])


def test_the_file_is_whole_after_every_row(kit, results: Results, tmp_path: Path) -> None:
    path = tmp_path / 'found.json'
    seen: list[int] = []
    evaluation = Evaluation(
        Traffic(epochs=1, seconds=1.0, lead=0.0), None, results,
        lambda text: seen.append(len(json.loads(path.read_text())['rows'])), lambda text: None)
    evaluation.sweep([way(kit, 'lockstep', 9)], (1, 2, 3))
    assert seen == [1, 2, 3]
    assert load_results(str(path)) == results.found
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(('slos', 'different', 'expected'), [
    ({'a': 0.1, 'b': 0.1, 'c': 0.1}, False, [0.1, 0.1, 0.1]),
    ({'a': 0.1, 'b': 0.1, 'c': 0.1}, True, [0.1, 0.15, 0.2]),
    ({'a': 0.1, 'b': 0.3}, False, [0.3, 0.3]),
    ({'a': 0.1, 'b': 0.3}, True, [0.1, 0.3]),
    ({'a': 0.1}, True, [0.1]),
], ids=['same', 'variants', 'the longest', 'their own', 'one'])
def test_deadlines_are_the_same_or_different(slos, different: bool, expected) -> None:
    assert list(spread_deadlines(slos, different).values()) == pytest.approx(expected)
