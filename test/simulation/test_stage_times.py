# SPDX-License-Identifier: Apache-2.0
"""What is made of times that were measured, and of those that were not."""

import pytest

from robion_ros.bench.settings import BenchError
from robion_ros.engine.profile import Load, Pair
from robion_ros.simulation.stage_times import complete, StageTimes, Together

A1, A2, B1 = Load('a', 1), Load('a', 2), Load('b', 1)


def test_what_is_measured_stays_under_the_models_names(kit) -> None:
    times = kit.make_times(('pick', 'place'), preprocess=0.001, gap=0.002)
    assert times.derived == () and (times.preprocess, times.gap) == (0.001, 0.002)
    assert times.vlm[Load('place', 2)] == kit.VLM[2] and times.adit[Load('pick', 1)] == 0.005
    assert len(times.locksteps) == 16
    assert times.locksteps[Pair(Load('pick', 1), Load('place', 2))].whole == kit.PAIRS[1, 2]
    assert times.stored[Load('pick', 2), Load('pick', 2)] == kit.PAIRS[2, 2]


def test_a_models_own_times_come_before_its_architectures() -> None:
    times = StageTimes({A1: 1.0, Load('fast', 1): 0.5}, {A1: 1.0, Load('fast', 1): 0.25}, {})
    found = complete(times, {'fast': 'a', 'other': 'a'}, (1,))
    assert found.vlm == {Load('fast', 1): 0.5, Load('other', 1): 1.0}
    assert found.adit == {Load('fast', 1): 0.25, Load('other', 1): 1.0}


def test_a_pair_hides_as_much_of_the_shorter_stage_as_those_measured() -> None:
    """5 of the 10 ms of the shorter stage are hidden; so half of the others, too."""
    times = StageTimes({A1: 0.020, A2: 0.030}, {A1: 0.010, A2: 0.020},
                       {Pair(A1, A1): Together(0.025, 0.020)})
    found = complete(times, {'a': 'a'}, (1, 2))
    assert found.locksteps[Pair(A1, A1)] == Together(0.025, 0.020)
    assert found.locksteps[Pair(A2, A2)].whole == pytest.approx(0.050 - 0.010)
    assert found.locksteps[Pair(A1, A2)].whole == pytest.approx(0.040 - 0.010)
    assert found.derived == ('VLM 1 of a beside ADiT 2 of a', 'VLM 2 of a beside ADiT 1 of a',
                             'VLM 2 of a beside ADiT 2 of a')


def test_where_no_pair_is_known_stages_follow_each_other() -> None:
    found = complete(StageTimes({A1: 0.02}, {A1: 0.01}, {}), {'a': 'a'}, (1,))
    assert found.locksteps[Pair(A1, A1)].whole == pytest.approx(0.03)


def test_stages_alone_last_no_longer_than_the_shortest_lockstep_with_them() -> None:
    pairs = {Pair(vlm, adit): Together(time, time) for vlm, adit, time in (
        (A1, A1, 0.010), (A1, A2, 0.012), (A2, A1, 0.020), (A2, A2, 0.022))}
    found = complete(StageTimes({}, {}, pairs), {'m': 'a'}, (1, 2))
    assert found.vlm == {Load('m', 1): 0.010, Load('m', 2): 0.020}
    assert found.adit == {Load('m', 1): 0.010, Load('m', 2): 0.012}
    assert len(found.derived) == 4 and 'VLM 1 of a alone' in found.derived


def test_no_pair_is_shorter_than_its_stages() -> None:
    times = StageTimes({A1: 0.02, B1: 0.001}, {A1: 0.01, B1: 0.03},
                       {Pair(A1, A1): Together(0.001, 0.001)})
    found = complete(times, {'a': 'a', 'b': 'b'}, (1,))
    for pair, together in found.locksteps.items():
        if pair != Pair(A1, A1):
            assert together.whole >= max(found.vlm[pair.vlm], found.adit[pair.adit])


@pytest.mark.parametrize(('models', 'sizes', 'problem'), [
    ({'a': 'a'}, (1, 2, 4), 'VLM stage of a takes at batch 4 is not known; known are a'),
    ({'x': 'pi0'}, (1,), 'VLM stage of pi0 takes at batch 1 is not known'),
])
def test_what_nothing_is_known_of_is_named(models, sizes, problem: str) -> None:
    times = StageTimes({A1: 0.1, A2: 0.1}, {A1: 0.1, A2: 0.1}, {})
    with pytest.raises(BenchError, match=problem):
        complete(times, models, sizes)
