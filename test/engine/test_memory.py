# SPDX-License-Identifier: Apache-2.0
"""What is placed on a device is weighed before it is loaded, and what is too much is named."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.config import CameraConfig, FactoryConfig, ModelConfig, ServerConfig
from robion_ros.engine import memory
from robion_ros.engine.device import Memory, open_device
from robion_ros.engine.memory import (
    CONTEXT,
    find_excess,
    make_placement,
    make_share,
    MemoryFile,
    outline_models,
    Placement,
    Share,
)
from robion_ros.models.registry import load, Outline, outline

GB = 10**9
MODEL = ModelConfig('tiny', {'a': CameraConfig()}, ('j',), 2.0, 0.1)
FACTORY = FactoryConfig({'a': MODEL, 'b': MODEL, 'c': MODEL},
                        {'s': ServerConfig(('a', 'b')), 't': ServerConfig(('c',), max_batch=4)})
OUTLINES = {'a': Outline('x 2', 6 * GB), 'b': Outline('x 1', 2 * GB)}

shares = st.lists(st.builds(
    Share, st.sampled_from('stu'), st.dictionaries(st.sampled_from('abc'),
                                                   st.integers(0, 100 * GB)),
    st.integers(CONTEXT, 10 * GB), st.booleans()), max_size=4)


def share(server: str, size: int) -> Share:
    return Share(server, {'pick': size}, GB, False)


def test_weights_are_known_and_the_rest_is_estimated() -> None:
    found = make_share(FACTORY, 's', OUTLINES, {})
    assert found.weights == {'a': 6 * GB, 'b': 2 * GB} and not found.measured
    # 10 % of the largest model's weights for each request of a batch of 2.
    assert found.beside == CONTEXT + int(1.2 * GB)
    assert found.total == 8 * GB + found.beside


def test_the_rest_is_what_it_was_the_last_time() -> None:
    known = {Placement(('x 1', 'x 2'), 2, 'lockstep'): 3 * GB}
    found = make_share(FACTORY, 's', OUTLINES, known)
    assert found.measured and found.beside == CONTEXT + 3 * GB
    assert make_placement(reversed(OUTLINES.values()), 2, 'lockstep') in known
    for other in (Placement(('x 1',), 2, 'lockstep'), Placement(('x 1', 'x 2'), 4, 'lockstep'),
                  Placement(('x 1', 'x 2'), 2, 'monolithic')):
        assert not make_share(FACTORY, 's', OUTLINES, {other: 3 * GB}).measured


@given(shares, st.integers(0, 200 * GB), st.integers(0, 200 * GB), st.sampled_from('stu'))
def test_there_is_an_excess_exactly_if_something_does_not_fit(
        placed: list[Share], free: int, used: int, own: str) -> None:
    there = Memory(free, free + used)
    fits = (sum(one.total for one in placed) <= there.total
            and sum(one.total - CONTEXT for one in placed if one.server == own) <= free)
    problem = find_excess('cuda:0', placed, there, own)
    assert (problem == '') == fits
    assert not problem or all(one.server in problem for one in placed)


def test_what_exceeds_the_device_is_named_with_sizes_and_a_mend() -> None:
    problem = find_excess('cuda:1', [share('gpu_0', 60 * GB), share('gpu_1', 90 * GB)],
                          Memory(140 * GB, 143 * GB))
    assert problem == (
        'cuda:1 has 143.00 GB; placed on it are 152.00 GB, 9.00 GB more than there are: '
        'gpu_0: weights of pick 60.00 GB; graphs and buffers 1.00 GB (estimated); '
        'gpu_1: weights of pick 90.00 GB; graphs and buffers 1.00 GB (estimated). '
        'Place fewer models on it, lower max_batch, or give a server another device')


def test_memory_that_others_have_taken_is_said() -> None:
    placed = [share('gpu_0', 60 * GB), share('gpu_1', 50 * GB)]
    # The other server may be what is loaded already, so its share is not asked for twice.
    assert find_excess('cuda:0', placed, Memory(70 * GB, 140 * GB), 'gpu_0') == ''
    problem = find_excess('cuda:0', placed, Memory(50 * GB, 140 * GB), 'gpu_0')
    assert 'only 50.00 GB are free, 10.50 GB less than gpu_0 takes; end what uses it' in problem


def test_sizes_of_a_factory_are_told_once_without_loading(
        monkeypatch: pytest.MonkeyPatch) -> None:
    known: memory.Outlines = {}
    outlines = outline_models(FACTORY, 's', known)
    assert set(outlines) == {'a', 'b'} and outlines['a'] == outlines['b']
    assert outlines['a'].weights > 10**6
    monkeypatch.setattr(memory, 'outline', lambda *_: pytest.fail('known already'))
    assert outline_models(FACTORY, 's', known) == outlines


def test_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    factory = FactoryConfig({'a': ModelConfig('tiny', {'a': CameraConfig()}, ('j',), 2.0, 0.1,
                                              checkpoint=str(tmp_path))},
                            {'s': ServerConfig(('a',))})
    with pytest.raises(ValueError, match=r'models\.a: checkpoint .* has no config\.json'):
        outline_models(factory, 's', {})


def test_what_was_taken_is_kept_for_a_kind_of_machine(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path, {'gpu': 'one'})
    one, two = Placement(('x 1', 'x 2'), 2, 'lockstep'), Placement(('x 1',), 4, 'monolithic')
    file.add(one, 3 * GB)
    file.add(two, 0)
    file.add(one, 4 * GB)
    assert file.read() == {one: 4 * GB, two: 0}
    assert MemoryFile(tmp_path, {'gpu': 'two'}).read() == {}
    file.path.write_text(file.path.read_text().replace('"bytes": 0', '"bytes": -1'))
    assert file.read() == {}


def test_memory_of_the_machine() -> None:
    there = open_device('cpu').memory()
    assert there is None or 0 < there.free <= there.total
    assert open_device('cpu').taken() is None


@pytest.mark.gpu
@pytest.mark.parametrize('architecture', ['tiny', 'pi0_small', 'gr00t_n1_5_small'])
def test_memory_of_a_gpu_is_told_and_weights_are_as_outlined(architecture: str) -> None:
    model, device = replace(MODEL, architecture=architecture), open_device('cuda:0')
    network = load(model, 'cuda:0').network  # type: ignore[attr-defined]
    weights = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))
    assert outline(model, 'cuda:0').weights == weights
    there, taken = device.memory(), device.taken()
    assert there and taken and 0 <= there.free < there.total
    assert weights < taken < there.total
