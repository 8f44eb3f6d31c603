# SPDX-License-Identifier: Apache-2.0
"""What has been measured is not measured again, and models of equal shapes share it."""

from types import SimpleNamespace

import pytest

from robion_ros.engine import profiler
from robion_ros.engine.profile import Cut, Load, Pair, ProfileFile, WHOLE

LARGE, SMALL = (SimpleNamespace(shapes=f'pi0: {size}') for size in ('large', 'small'))


@pytest.fixture
def measured(monkeypatch) -> list[list[Pair]]:
    """Replace the measuring; return the pairs of each call."""
    calls = []

    def measure(by_shapes, pairs, partitions, report):
        calls.append(list(pairs))
        return {pair: {WHOLE: 0.01 * len(calls), Cut(8, 3): 0.02} for pair in pairs}
    monkeypatch.setattr(profiler, 'measure', measure)
    return calls


@pytest.fixture
def file(tmp_path) -> ProfileFile:
    return ProfileFile(tmp_path, {'gpu': 'one'})


def test_models_of_equal_shapes_are_measured_once_and_all_are_named(measured, file) -> None:
    table = profiler.profile({'a': LARGE, 'b': LARGE}, (2, 1), None, file)
    assert [len(call) for call in measured] == [4]
    loads = [Load(name, size) for name in 'ab' for size in (2, 1)]
    assert set(table) == {Pair(vlm, adit) for vlm in loads for adit in loads}


def test_only_what_is_not_known_is_measured(measured, file) -> None:
    profiler.profile({'a': LARGE}, (1,), None, file)
    table = profiler.profile({'a': LARGE, 'b': SMALL}, (1,), None, file)
    assert [len(call) for call in measured] == [1, 3]
    assert table[Pair(Load('a', 1), Load('a', 1))][WHOLE] == 0.01
    assert table[Pair(Load('a', 1), Load('b', 1))][WHOLE] == 0.02
    assert profiler.profile({'c': SMALL}, (1,), None, file) == {
        Pair(Load('c', 1), Load('c', 1)): {WHOLE: 0.02, Cut(8, 3): 0.02}}
    assert len(measured) == 2


def test_again_replaces_what_was_known(measured, file) -> None:
    for again in (False, True):
        table = profiler.profile({'a': LARGE}, (1,), None, file, again)
    assert len(measured) == 2
    assert table[Pair(Load('a', 1), Load('a', 1))][WHOLE] == 0.02
    assert list(file.read().values()) == [{WHOLE: 0.02, Cut(8, 3): 0.02}]


def test_code_that_changes_times_is_part_of_the_machine() -> None:
    names = {path.name for path in profiler.CODE}
    assert {'models', 'adit_graphs.py', 'graphed.py', 'graphs.py', 'partition.py',
            'profiler.py'} == names
    assert all(path.exists() for path in profiler.CODE)
