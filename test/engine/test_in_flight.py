# SPDX-License-Identifier: Apache-2.0
"""When the successor of a lockstep is launched, and that everything is answered once."""

from math import inf
from threading import Timer
from time import monotonic

import pytest

from robion_ros.engine.in_flight import approach, conclude
from robion_ros.engine.pipelines import Lockstep

LONG = 1000.0


@pytest.fixture
def under_way(kit):
    """Return a device, a lockstep on it with both stages and the numbers answered."""
    def make(lead: float):
        ledger, model, numbers = kit.Ledger(lead), kit.Fake(), []
        pipeline = Lockstep({'m': model}, ledger)

        def answer(outcome) -> None:
            numbers.append(outcome.request.number)
        first = pipeline.tick(kit.batch_of(model, 1, 2), None, answer)
        second = pipeline.tick(kit.batch_of(model, 3), first, answer)
        ledger.take()
        return ledger, second, answer, numbers
    return make


def test_a_device_without_lead_is_waited_for(under_way) -> None:
    ledger, in_flight, answer, numbers = under_way(0.0)
    approach(in_flight, 0.01, answer)
    assert ledger.take() == ['await adit 1', 'await vlm 2']
    assert numbers == [1, 2] and in_flight.seconds > 0


def test_stages_of_unknown_duration_are_waited_for(under_way) -> None:
    ledger, in_flight, answer, numbers = under_way(0.002)
    approach(in_flight, inf, answer)
    assert ledger.take() == ['await adit 1', 'await vlm 2']
    assert numbers == [1, 2]


def test_the_successor_comes_a_lead_before_the_end(under_way) -> None:
    ledger, in_flight, answer, numbers = under_way(0.05)
    approach(in_flight, 0.1, answer)
    assert monotonic() >= in_flight.started + 0.05
    assert ledger.take() == [] and numbers == []  # Nothing is waited for: both stages run on.


def test_chunks_leave_while_the_vlm_stage_runs_on(under_way) -> None:
    ledger, in_flight, answer, numbers = under_way(0.001)
    Timer(0.02, ledger.end, ('adit 1',)).start()
    approach(in_flight, 0.1, answer)
    assert numbers == [1, 2] and ledger.take() == []
    conclude(in_flight, answer)
    assert numbers == [1, 2] and ledger.take() == ['await vlm 2']


def test_stages_that_end_sooner_than_expected_are_not_waited_for(under_way) -> None:
    ledger, in_flight, answer, _ = under_way(0.001)
    for stage in ('adit 1', 'vlm 2'):
        Timer(0.02, ledger.end, (stage,)).start()
    approach(in_flight, LONG, answer)


def test_a_stage_that_failed_tells_no_time(kit) -> None:
    def hook(stage: str, numbers: tuple[int, ...]) -> None:
        raise RuntimeError('out of memory')
    pipeline, model = Lockstep({'m': kit.Fake(hook)}, kit.Ledger()), kit.Fake()
    in_flight = pipeline.tick(kit.batch_of(model, 1), None, lambda outcome: None)
    conclude(in_flight, lambda outcome: None)
    assert in_flight.seconds == 0.0
