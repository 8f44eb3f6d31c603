# SPDX-License-Identifier: Apache-2.0
"""An engine knows how long its thread has been at what it does, and can be left where it hangs."""

from time import monotonic, sleep

import pytest

from robion_ros.engine.pace import HISTORY, Pace
from robion_ros.engine.pipelines import PIPELINES

from ..waiting import until

FLEET = {name: 'm' for name in 'abcdefgh'}
KINDS = sorted(PIPELINES)


def test_usual_is_the_median_of_the_last_and_longest_of_those_that_tried() -> None:
    pace = Pace(longest=0.2)
    assert pace.usual == 0.0
    for seconds in (0.9, *[0.1] * (HISTORY // 2), *[0.3] * (HISTORY // 2 + 1)):
        pace.count(seconds, tried=False)
    assert (pace.usual, pace.longest, pace.locksteps) == (0.3, 0.2, HISTORY + 2)
    pace.count(0.5, tried=True)
    assert pace.longest == 0.5


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('stage', ['vlm', 'adit', 'postprocess'])
def test_thread_is_at_one_thing_while_a_stage_runs_and_at_rest_after(kit, start, kind: str,
                                                                     stage: str) -> None:
    script = kit.Script(stage)
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, engine=kind)
    until(lambda: engine.pace.since is None)
    before = monotonic()
    engine.submit(kit.request(1, 'a'))
    script.wait(stage, 1)
    seen = None
    while seen is None or seen != engine.pace.since:  # It launches ahead of what it waits for.
        seen = engine.pace.since
        sleep(kit.GRACE)
    assert before <= seen <= monotonic()
    script.free()
    outcomes.wait(1)
    until(lambda: engine.pace.since is None)


def test_slowest_run_of_the_warm_up_is_known(kit, start) -> None:
    def hook(stage: str, numbers: tuple[int, ...]) -> None:
        if stage == 'vlm' and len(numbers) == 4:
            sleep(0.2)
    engine, _ = start({'m': kit.Fake(hook)}, FLEET, max_batch=8)
    assert engine.pace.longest >= 0.2
    assert engine.pace.locksteps == 0


def test_slowest_run_of_a_model_that_comes_is_known(kit, start) -> None:
    engine, _ = start({'m': kit.Fake()}, FLEET)
    before = engine.pace.longest
    engine.add('n', kit.Fake(lambda stage, numbers: sleep(0.2) if stage == 'vlm' else None))
    assert engine.pace.longest >= 0.2 > before


@pytest.mark.parametrize('kind', KINDS)
def test_engine_that_hangs_can_be_left_and_stopped_later(kit, start, kind: str) -> None:
    script = kit.Script('vlm')
    engine, outcomes = start({'m': kit.Fake(script)}, FLEET, engine=kind, max_batch=1)
    engine.submit(kit.request(1, 'a'))
    script.wait('vlm', 1)
    engine.submit(kit.request(2, 'b'))
    assert not engine.stop(0.0)
    assert [number for number, _ in outcomes.ends()] == [2], 'what waits ends all the same'
    assert engine.alive
    script.free()
    assert engine.stop()
    assert sorted(number for number, _ in outcomes.ends()) == [1, 2]
    assert not engine.alive
