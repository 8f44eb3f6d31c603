# SPDX-License-Identifier: Apache-2.0
"""Files of results."""

import os
from pathlib import Path

import pytest

from robion_ros.bench.results import load_results, Results
from robion_ros.bench.settings import BenchError


def test_what_was_found_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / 'found.json'
    results = Results('sweep', str(path))
    results.describe({'seed': 3}, {'cpu': 'some'})
    results.add_row({'robots': 4, 'latency_ms': {'p50': None}})
    results.add_row({'robots': 8, 'latency_ms': {'p50': 1.5}})
    results.add_result({'capacity': 4, 'row': None})
    assert load_results(str(path)) == results.found
    assert len(path.read_text().splitlines()) == 13


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path: Path, monkeypatch) -> None:
    results = Results('sweep', str(tmp_path / 'found.json'))
    results.write()

    def full(path: Path, text: str, **how: str) -> None:
        path.touch()
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(Path, 'write_text', full)
    with pytest.raises(BenchError, match='cannot be written: No space left'):
        results.add_row({})
    assert [path.name for path in tmp_path.iterdir()] == ['found.json']


def test_without_a_name_there_is_no_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Results('sweep', None).add_row({'robots': 4})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('text', ['', '[]', '{}', '{"format": 99}', '{"format": 1}', 'null',
                                  '{"format": 1, "kind": "sweep", "rows": 3}',
                                  pytest.param('[' * 100_000, id='nested')])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / 'found.json'
    path.write_text(text)
    with pytest.raises(BenchError, match=r'found\.json'):
        load_results(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match='there is no such file'):
        load_results(str(tmp_path / 'none.json'))


def test_a_pipe_or_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'pipe')
    with pytest.raises(BenchError, match='is a device or a pipe'):
        Results('sweep', str(tmp_path / 'pipe'))
    assert (tmp_path / 'pipe').is_fifo()


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / 'elsewhere').mkdir()
    (tmp_path / 'link.json').symlink_to(tmp_path / 'elsewhere' / 'found.json')
    Results('sweep', str(tmp_path / 'link.json')).add_row({'robots': 4})
    assert (tmp_path / 'link.json').is_symlink()
    assert load_results(str(tmp_path / 'elsewhere' / 'found.json'))['rows'] == [{'robots': 4}]
