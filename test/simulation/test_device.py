# SPDX-License-Identifier: Apache-2.0
"""The engine's own pipelines on virtual time: when stages start and end."""

import pytest
import torch

from robion_ros.core import ActionChunk, Request
from robion_ros.engine.batch import Batch, Ticket
from robion_ros.engine.pipelines import PIPELINES
from robion_ros.simulation.device import BLOCK, VirtualClock, VirtualDevice, VirtualModel
from robion_ros.simulation.ledger import NOTHING


@pytest.fixture
def under_test(kit):
    """Return a pipeline of a kind, its clock, and a maker of batches."""
    def make(kind: str, gap: float = 0.0):
        clock = VirtualClock(10.0)
        device = VirtualDevice(clock, 0.001, gap)
        model = VirtualModel('pick', kit.make_times(), device.spend)

        def batch(*numbers: int) -> Batch:
            return Batch('pick', tuple(
                Ticket(Request(f'r{number}', number, 'pick', NOTHING, clock.now, 99.0), {},
                       torch.zeros(0), clock.now, BLOCK) for number in numbers), clock.now)
        return PIPELINES[kind]({'pick': model}, device, clock), clock, batch
    return make


def ends(chunks: list[ActionChunk]) -> list[tuple[int, float]]:
    return [(chunk.request.number, pytest.approx(chunk.finished - 10.0)) for chunk in chunks]


def test_a_lockstep_runs_both_stages_at_once_and_ends_with_the_longer(under_test, kit) -> None:
    pipeline, clock, batch = under_test('lockstep')
    chunks: list = []
    first = pipeline.tick(batch(1), None, chunks.append)
    assert clock.now == 10.0, 'nothing was waited for'
    second = pipeline.tick(batch(2, 3), first, chunks.append)
    assert clock.now == pytest.approx(10.008) and first.seconds == pytest.approx(0.008)
    assert chunks == []
    third = pipeline.tick(None, second, chunks.append)
    assert second.seconds == pytest.approx(kit.PAIRS[2, 1])
    assert ends(chunks) == [(1, 0.024)]
    assert pipeline.tick(None, third, chunks.append) is None
    assert ends(chunks) == [(1, 0.024), (2, 0.030), (3, 0.030)]
    assert [chunk.batch for chunk in chunks] == [1, 2, 2]
    pipeline.close()


def test_in_sequence_stages_take_what_they_take_alone(under_test) -> None:
    pipeline, clock, batch = under_test('monolithic')
    chunks: list = []
    first = pipeline.tick(batch(1), None, chunks.append)
    second = pipeline.tick(batch(2, 3), first, chunks.append)
    assert clock.now == pytest.approx(10.013)
    assert pipeline.tick(None, second, chunks.append) is None
    assert ends(chunks) == [(1, 0.013), (2, 0.033), (3, 0.033)]
    assert chunks[2].timings.vlm == pytest.approx(0.014)
    assert chunks[2].timings.adit == pytest.approx(0.006)


def test_a_gap_passes_between_two_locksteps(under_test) -> None:
    pipeline, _, batch = under_test('lockstep', gap=0.002)
    chunks: list = []
    first = pipeline.tick(batch(1), None, chunks.append)
    second = pipeline.tick(None, first, chunks.append)
    assert pipeline.tick(None, second, chunks.append) is None
    assert ends(chunks) == [(1, 0.015)]
    assert second.seconds == pytest.approx(0.005), 'it belongs to no lockstep'


def test_a_gap_passes_between_two_batches_in_sequence_and_not_inside(under_test) -> None:
    pipeline, clock, batch = under_test('monolithic', gap=0.002)
    chunks: list = []
    first = pipeline.tick(batch(1), None, chunks.append)
    clock.now = 10.012  # As if launched ahead.
    second = pipeline.tick(batch(2), first, chunks.append)
    assert pipeline.tick(None, second, chunks.append) is None
    assert ends(chunks) == [(1, 0.013), (2, 0.028)]
