# SPDX-License-Identifier: Apache-2.0
"""Every pair is tried under every cap, once on a machine, and the best is found again."""

import json
import logging

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.engine.profile import (
    best,
    code_version,
    Cut,
    default_folder,
    Ends,
    Load,
    measure_all,
    Pair,
    ProfileFile,
    WHOLE,
)

SMALL, LARGE = Load('pi0: small', 1), Load('pi0: large', 2)
PAIRS = [Pair(vlm, adit) for vlm in (SMALL, LARGE) for adit in (SMALL, LARGE)]
CAPS = 0, 128, 64, 8


def lockstep(pair: Pair, cut: Cut) -> Ends:
    """Take longest without a cap, and least under the cap that suits the batches."""
    suits = 64 * pair.vlm.batch
    return Ends(0.03 if cut == WHOLE else 0.02 + abs(cut.cap - suits) / 10_000, 0.01)


@pytest.fixture
def file(tmp_path) -> ProfileFile:
    return ProfileFile(tmp_path / 'profiles', {'gpu': 'one', 'code': '1'})


def test_the_best_cap_of_every_pair_is_found() -> None:
    table = measure_all(PAIRS, CAPS, lockstep)
    assert {pair: best(times) for pair, times in table.items()} == {
        pair: Cut(64 * pair.vlm.batch) for pair in PAIRS}
    assert all(set(times) == set(map(Cut, CAPS)) for times in table.values())


def test_no_cap_stays_where_caps_do_not_help() -> None:
    table = measure_all(PAIRS[:1], CAPS,
                        lambda pair, cut: Ends(0.01 if cut == WHOLE else 0.02, 0.0))
    assert best(table[PAIRS[0]]) == WHOLE


def test_a_time_is_the_median_and_hopeless_caps_are_tried_once() -> None:
    tried = []
    runs = iter([0.01, 0.5, 0.01, 0.012, 0.011, 0.001])

    def measure(pair: Pair, cut: Cut) -> Ends:
        tried.append(cut.cap)
        return Ends(next(runs) if cut == WHOLE else 0.1, 0.0)
    table = measure_all(PAIRS[:1], (0, 8, 16), measure)
    assert table[PAIRS[0]] == {WHOLE: 0.011, Cut(8): 0.1, Cut(16): 0.1}
    assert tried == [0] * 6 + [8, 16]


def shared(pair: Pair, cut: Cut) -> Ends:
    """Let a step take 2 ms on a part of 8 SMs, 1 ms on one of 16, and a quarter on all."""
    steps = 10
    vlm = {0: 0.016, 8: 0.0125, 16: 0.014}[cut.cap]
    beside = {0: 0.001, 8: 0.002, 16: 0.001}[cut.cap]
    first = cut.steps or steps
    return Ends(vlm, first * beside + (steps - first) * 0.00025)


def test_an_adit_stage_that_ends_last_leaves_its_part_when_the_vlm_has_ended() -> None:
    table = measure_all(PAIRS[:1], (0, 8, 16), shared, steps=lambda load: 10)
    times = table[PAIRS[0]]
    assert set(times) == {WHOLE, Cut(8), Cut(8, 6), Cut(8, 7), Cut(16)}
    assert best(times) == Cut(8, 6) and times[Cut(8, 6)] == pytest.approx(0.013)
    assert times[Cut(8, 7)] == pytest.approx(0.01475) and times[Cut(8)] == pytest.approx(0.02)


def test_steps_that_cannot_be_parted_are_not() -> None:
    assert set(measure_all(PAIRS[:1], (0, 8), shared)[PAIRS[0]]) == {WHOLE, Cut(8)}


@pytest.mark.parametrize('cut', [WHOLE, Cut(112), Cut(112, 8)], ids=str)
def test_a_cut_is_read_as_it_is_written(cut) -> None:
    assert Cut.parse(str(cut)) == cut


def test_progress_says_what_is_left(caplog) -> None:
    with caplog.at_level(logging.INFO):
        measure_all(PAIRS, CAPS, lockstep)
    assert len(caplog.messages) == 4
    assert 'profile 3/4' in caplog.messages[2] and 's left' in caplog.messages[2]
    assert 'batch 2 of pi0 beside 1 of pi0 takes 20.0 ms under a cap of 128' in caplog.messages[2]


def test_report_hears_of_every_cap() -> None:
    heard = []
    measure_all(PAIRS, CAPS, lockstep, report=lambda part, left: heard.append((part, left)))
    assert [part for part, _ in heard] == [tried / 16 for tried in range(1, 17)]
    assert all(left >= 0 for _, left in heard) and heard[-1][1] == 0


def test_a_file_gives_back_what_was_added(file) -> None:
    assert file.read() == {}
    first, second = (measure_all(part, CAPS, lockstep) for part in (PAIRS[:3], PAIRS[3:]))
    file.add(first)
    assert file.read() == first
    file.add(second)
    assert file.read() == first | second
    assert [path.name for path in file.folder.iterdir()] == [file.path.name]


def test_another_machine_or_program_has_another_file(file) -> None:
    file.add(measure_all(PAIRS, CAPS, lockstep))
    for other in ({'gpu': 'two', 'code': '1'}, {'gpu': 'one', 'code': '2'}):
        assert ProfileFile(file.folder, other).read() == {}
    assert ProfileFile(file.folder, {'code': '1', 'gpu': 'one'}).read() != {}
    assert json.loads(file.path.read_text())['machine'] == {'gpu': 'one', 'code': '1'}


@pytest.mark.parametrize('text', [
    '', '{', '[]', '{"rows": 3}', '{"rows": [{}]}', '{"rows": [7]}', b'\xff',
    '{"rows": [{"vlm": ["a", 1], "adit": ["a", 1], "times": {}}]}',
    '{"rows": [{"vlm": ["a", 1], "adit": ["a", 1], "times": {"8": 0}}]}',
    '{"rows": [{"vlm": ["a", "b"], "adit": ["a", 1], "times": {"8": 1}}]}',
    '{"rows": [{"vlm": ["a", 1], "adit": ["a", 1], "times": {"8/1/2": 1}}]}',
    '{"rows": [{"vlm": ["a", 1], "adit": ["a", 1], "times": {"/": 1}}]}',
], ids=repr)
def test_a_file_that_cannot_be_read_is_measured_anew(file, text, caplog) -> None:
    file.folder.mkdir()
    file.path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert file.read() == {}
    assert 'is measured anew' in caplog.text and str(file.path) in caplog.text
    file.add(measure_all(PAIRS[:1], CAPS, lockstep))
    assert set(file.read()) == set(PAIRS[:1])


@given(st.dictionaries(st.builds(Cut, st.integers(0, 132), st.integers(0, 10)),
                       st.floats(1e-6, 10), min_size=1))
def test_best_is_a_cut_that_no_other_beats(times) -> None:
    assert all(times[best(times)] <= time for time in times.values())


def test_profiles_are_kept_where_caches_are(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert default_folder() == tmp_path / 'robion_ros' / 'profiles'
    monkeypatch.setenv('XDG_CACHE_HOME', '')
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    assert default_folder() == tmp_path / 'home' / '.cache' / 'robion_ros' / 'profiles'


def test_code_version_changes_with_the_sources_alone(tmp_path) -> None:
    source = tmp_path / 'a.py'
    source.write_text('x = 1\n')
    before = code_version(tmp_path)
    (tmp_path / 'a.pyc').write_text('')
    assert code_version(tmp_path) == before
    source.write_text('x = 2\n')
    assert code_version(tmp_path) != before
    source.write_text('x = 1\n')
    source.rename(tmp_path / 'b.py')
    assert code_version(tmp_path) != before


def test_code_version_knows_folders_in_folders_and_single_files(tmp_path) -> None:
    kernels = tmp_path / 'models' / 'kernels'
    kernels.mkdir(parents=True)
    (kernels / 'matmul.py').write_text('x = 1\n')
    (tmp_path / 'graphs.py').write_text('x = 1\n')
    sources = tmp_path / 'models', tmp_path / 'graphs.py'
    seen = {code_version(*sources)}
    (tmp_path / 'other.py').write_text('x = 1\n')
    assert code_version(*sources) in seen
    (kernels / 'matmul.py').write_text('x = 2\n')
    seen.add(code_version(*sources))
    (tmp_path / 'graphs.py').write_text('x = 2\n')
    seen.add(code_version(*sources))
    assert len(seen) == 3
