# SPDX-License-Identifier: Apache-2.0
"""Rows at different steps beside each other, in places that change."""

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch

from robion_ros.bench.observations import Observations
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.slots import make_slots, Slots
from robion_ros.core import Request
from robion_ros.engine.batch import make_ticket, stack

ROWS = 5


@pytest.fixture(scope='module', params=['tiny', 'pi0', 'pi05'])
def rows(request: pytest.FixtureRequest):
    """Return a model, contexts and noises of some rows, and their actions."""
    name = {'tiny': 'prepared', 'pi0': 'prepared_pi0', 'pi05': 'prepared_pi0'}[request.param]
    prepared: Prepared = request.getfixturevalue(name)
    model = prepared.models['b' if request.param == 'pi05' else 'a']
    source = Observations(2, 3, 48, 64, 1)
    tickets = tuple(make_ticket(model, Request(f'r{n}', n, 'a', source.make(), 0.0, 0.0), 0.0)
                    for n in range(ROWS))
    context = model.vlm(stack(tickets))
    noise = torch.stack([ticket.noise for ticket in tickets])
    return model, context, noise, model.adit(context, noise)


def of(context, row: int):
    return {name: tensor[row:row + 1] for name, tensor in context.items()}


@settings(max_examples=15, deadline=None)
@given(gaps=st.lists(st.integers(0, 4), min_size=ROWS, max_size=ROWS))
def test_rows_that_enter_at_any_step_get_their_own_actions(rows, gaps: list[int]) -> None:
    model, context, noise, expected = rows
    slots = Slots(model, of(context, 0), noise[0], ROWS)
    waiting, running, found = list(range(ROWS)), [], {}
    with torch.inference_mode():
        while waiting or running:
            while waiting and (not running or gaps[waiting[0]] == 0):
                row = waiting.pop(0)
                slots.admit(len(running), of(context, row), noise[row])
                running.append([row, model.denoising_steps])
            if waiting:
                gaps[waiting[0]] -= 1
            slots.step(len(running))
            for place in reversed(range(len(running))):
                running[place][1] -= 1
                if running[place][1] == 0:
                    found[running[place][0]] = slots.fetch(place)
                    last = running.pop()
                    if place < len(running):
                        slots.move(len(running), place)
                        running[place] = last
    for row in range(ROWS):
        torch.testing.assert_close(found[row], expected[row], atol=1e-5, rtol=1e-5)


def test_what_was_fetched_stays(rows) -> None:
    model, context, noise, _ = rows
    slots = Slots(model, of(context, 0), noise[0], 2)
    before = slots.fetch(0)
    with torch.inference_mode():
        slots.step(1)
    assert not torch.equal(before, slots.fetch(0))
    torch.testing.assert_close(before, noise[0], atol=0, rtol=0)


def test_slots_of_a_prepared_model_take_its_contexts(prepared: Prepared) -> None:
    slots = make_slots('a', prepared.models['a'], prepared.ready['a'],  # type: ignore[arg-type]
                       prepared.device, 3)
    assert slots.size == 3 and slots.steps == 10


def test_graphs_are_captured_for_every_count_the_largest_first(rows, monkeypatch) -> None:
    """What a GPU does, without one: the order of calls, and that replays take their place."""
    from contextlib import nullcontext

    from robion_ros.bench import slots as module
    model, context, noise, expected = rows
    log: list[tuple[object, ...]] = []

    class Graph:
        def __init__(self, function, outputs, stream, pool) -> None:
            log.append(('capture', len(outputs['actions']), stream, pool))
            self._function, self._outputs = function, outputs

        def replay(self) -> None:
            for name, tensor in self._function().items():
                self._outputs[name].copy_(tensor)

    def new_stream(device, priority=0):
        return f'stream of priority {priority}'
    monkeypatch.setattr(module, 'Graph', Graph)
    monkeypatch.setattr(module, 'new_stream', new_stream)
    monkeypatch.setattr(module, 'warm_up', lambda function, stream: log.append(
        ('warm up', len(function()['actions']), stream)))
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, 'graph_pool_handle', lambda: 'pool')
    slots = Slots(model, of(context, 0), noise[0], 3)
    slots._capture(torch.device('cpu'))
    stream = 'stream of priority -1'
    assert log == [event for count in (3, 2, 1) for event in (
        ('warm up', count, stream), ('capture', count, stream, 'pool'))]
    with torch.inference_mode():
        slots.admit(0, of(context, 1), noise[1])
        for _ in range(slots.steps):
            slots.step(1)
        torch.testing.assert_close(slots.fetch(0), expected[1], atol=1e-5, rtol=1e-5)
