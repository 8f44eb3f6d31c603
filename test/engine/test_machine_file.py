# SPDX-License-Identifier: Apache-2.0
"""Rows of a machine are kept, also by processes that write at once, and claims are exclusive."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
import multiprocessing
import os
from pathlib import Path

import pytest

from robion_ros.engine import machine_file
from robion_ros.engine.machine_file import cache_folder, MachineFile


@pytest.fixture
def file(tmp_path: Path) -> MachineFile:
    return MachineFile(tmp_path / 'measured', {'gpu': 'one', 'code': '1'})


def number(row: Mapping[str, int]) -> int:
    return row['number']


def add(file: MachineFile, value: int) -> None:
    file.rewrite(lambda: [{'number': one} for one in [*file.parse(number), value]])


def test_rows_are_given_back_and_another_machine_has_others(file: MachineFile) -> None:
    assert file.parse(number) == []
    add(file, 1)
    add(file, 2)
    assert file.parse(number) == [1, 2]
    assert MachineFile(file.folder, {'gpu': 'two', 'code': '1'}).parse(number) == []
    assert MachineFile(file.folder, {'code': '1', 'gpu': 'one'}).parse(number) == [1, 2]
    assert [path.name for path in file.folder.iterdir()] == [file.path.name]


def test_a_full_disk_leaves_what_was_there(file: MachineFile,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    add(file, 1)
    write = Path.write_text

    def full(path: Path, text: str, **how: str) -> int:
        write(path, text[:9], **how)
        raise OSError('no space')
    monkeypatch.setattr(Path, 'write_text', full)
    with pytest.raises(OSError, match='no space'):
        add(file, 2)
    assert file.parse(number) == [1]
    assert [path.name for path in file.folder.iterdir()] == [file.path.name]


def test_rows_that_are_added_at_once_are_all_kept(file: MachineFile) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda value: add(file, value), range(40)))
    assert sorted(file.parse(number)) == list(range(40))


def add_many(file: MachineFile, first: int) -> None:
    for value in range(first, first + 20):
        add(file, value)


def test_processes_that_add_at_once_lose_nothing(file: MachineFile) -> None:
    context = multiprocessing.get_context('fork')
    processes = [context.Process(target=add_many, args=(file, first)) for first in (0, 20, 40)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(file.parse(number)) == list(range(60))


@pytest.mark.parametrize('text', [b'', b'{', b'[]', b'{"rows": 3}', b'{"rows": [7]}', b'\xff',
                                  b'[' * 100_000], ids=lambda text: repr(text[:20]))
def test_a_file_that_cannot_be_read_has_no_rows_and_is_replaced(
        file: MachineFile, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file.folder.mkdir()
    file.path.write_bytes(text)
    assert file.parse(number) == []
    assert 'is measured anew' in caplog.text and str(file.path) in caplog.text
    add(file, 1)
    assert file.parse(number) == [1]


def test_what_is_claimed_is_its_owners_alone(file: MachineFile) -> None:
    with file.claim('a') as mine, file.claim('b') as other, file.claim('a') as again:
        assert (mine, other, again) == (True, True, False)
    with file.claim('a') as mine:
        assert mine


def test_an_error_under_a_claim_is_passed_on_and_ends_it(file: MachineFile) -> None:
    with pytest.raises(BlockingIOError, match='inner'), file.claim('a'):
        raise BlockingIOError('inner')
    with file.claim('a') as mine:
        assert mine


def claim_and_die(file: MachineFile) -> None:
    with file.claim('a'):
        os._exit(1)


def test_a_claim_ends_with_its_process(file: MachineFile) -> None:
    process = multiprocessing.get_context('fork').Process(target=claim_and_die, args=(file,))
    process.start()
    process.join()
    with file.claim('a') as mine:
        assert mine


def test_where_nothing_can_be_written_everybody_has_a_claim(tmp_path: Path) -> None:
    (tmp_path / 'taken').write_text('no folder')
    file = MachineFile(tmp_path / 'taken', {})
    with file.claim('a') as mine, file.claim('a') as again:
        assert mine and again
    with pytest.raises(OSError):
        add(file, 1)


def test_files_are_kept_where_caches_are(monkeypatch: pytest.MonkeyPatch,
                                         tmp_path: Path) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert cache_folder('capacities') == tmp_path / 'robion_ros' / 'capacities'
    assert len(machine_file.digest('x')) == 16
