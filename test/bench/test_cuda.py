# SPDX-License-Identifier: Apache-2.0
"""
Modes on a GPU: every one gives the chunks of monolithic, and steps in graphs those of the model.

BATCH_TOLERANCE is what other kernels, of other batch sizes and under caps, may move an action of
order one by, after ten steps in bfloat16.
"""

from collections.abc import Mapping
from dataclasses import replace
from threading import Condition

import numpy as np
import pytest
import torch

from robion_ros.bench.ablation import run_ablation
from robion_ros.bench.drive import never
from robion_ros.bench.modes import find_second, make_pipeline, ModeOptions
from robion_ros.bench.observations import Observations
from robion_ros.bench.prepared import make_configs, prepare, Prepared
from robion_ros.bench.slots import make_slots
from robion_ros.bench.sustained import capacity_file, measure_capacity
from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk, Outcome, Request
from robion_ros.engine.batch import make_ticket, stack
from robion_ros.engine.engine import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BATCH_TOLERANCE = {'tiny': 1e-4, 'pi0_small': 0.05, 'pi05_small': 0.05, 'smolvla_small': 0.05,
                   'gr00t_n1_5_small': 0.05, 'xiaomi_robotics_0_small': 0.1}
NUMBERS = range(1, 17)
TIMEOUT = 60.0


@pytest.fixture(scope='module', params=sorted(BATCH_TOLERANCE))
def prepared(request: pytest.FixtureRequest, tmp_path_factory) -> Prepared:
    """Return two variants of an architecture on the GPU, in graphs, with caps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_CACHE_HOME', str(tmp_path_factory.mktemp('profiles')))
        models = {'a': request.param, 'b': request.param}
        return prepare(make_configs(models, dict.fromkeys(models, 1.0), 2.0, 2, 3, 0), 'cuda:0', 2)


@pytest.fixture(scope='module')
def requests(prepared: Prepared) -> list[Request]:
    source = Observations(2, 3, 48, 64, 1)
    return [Request(f'robot_{number}', number, 'ab'[number % 2], source.make(), 0.0, 1e9)
            for number in NUMBERS]


def serve(prepared: Prepared, mode: str, requests: list[Request]) -> Mapping[int, np.ndarray]:
    outcomes: list[Outcome] = []
    changed = Condition()

    def hear(outcome: Outcome) -> None:
        with changed:
            outcomes.append(outcome)
            changed.notify_all()
    options = ModeOptions(second_device=find_second('cuda:0', ''))
    pipeline = make_pipeline(mode, prepared, options)  # type: ignore[arg-type]
    engine = Engine(prepared.ready, pipeline, ServerConfig(('a', 'b'), 'cuda:0'), hear)
    engine.assign(1, {request.robot: request.model for request in requests})
    for request in requests:
        engine.submit(request)
    with changed:
        assert changed.wait_for(lambda: len(outcomes) >= len(requests), TIMEOUT)
    engine.stop()
    assert all(isinstance(outcome, ActionChunk) for outcome in outcomes), outcomes
    return {outcome.request.number: outcome.actions for outcome in outcomes}


@pytest.fixture(scope='module')
def expected(prepared: Prepared, requests: list[Request]) -> Mapping[int, np.ndarray]:
    return serve(prepared, 'monolithic', requests)


@pytest.mark.parametrize('mode', ['lockstep', 'two-stream', 'stepwise', 'split'])
def test_chunks_are_those_of_monolithic(prepared: Prepared, requests, expected,
                                        mode: str) -> None:
    if mode == 'split' and torch.cuda.device_count() < 2:
        pytest.skip('there is one GPU')
    found = serve(prepared, mode, requests)
    tolerance = BATCH_TOLERANCE[prepared.models['a'].spec.architecture]
    for number, actions in expected.items():
        np.testing.assert_allclose(found[number], actions, atol=tolerance)
    assert np.abs(expected[1] - expected[3]).max() > 0.1


def test_steps_in_graphs_give_what_the_model_gives(prepared: Prepared, requests) -> None:
    """The second row enters three steps after the first and takes its place in the end."""
    model, ready = prepared.models['a'], prepared.ready['a']
    slots = make_slots('a', model, ready, prepared.device, 4)  # type: ignore[arg-type]
    stage = prepared.device.stage('adit')
    tickets = [make_ticket(model, request, 0.0) for request in requests[:2]]
    contexts = [stage.launch(lambda ticket=ticket: ready.vlm(stack((ticket,)))).result().value
                for ticket in tickets]

    def run() -> list[torch.Tensor]:
        slots.admit(0, contexts[0], tickets[0].noise)
        for _ in range(3):
            slots.step(1)
        slots.admit(1, contexts[1], tickets[1].noise)
        for _ in range(slots.steps - 3):
            slots.step(2)
        first = slots.fetch(0)
        slots.move(1, 0)
        for _ in range(3):
            slots.step(1)
        return [first, slots.fetch(0)]
    found = stage.launch(run).result().value
    tolerance = BATCH_TOLERANCE[model.spec.architecture]
    for ticket, context, actions in zip(tickets, contexts, found, strict=True):
        whole = stage.launch(lambda ticket=ticket, context=context: ready.adit(
            context, ticket.noise[None])).result().value
        torch.testing.assert_close(actions, whole[0], atol=tolerance, rtol=0)


def test_steps_beside_a_vlm_stage_stay_the_same(prepared: Prepared, requests) -> None:
    """Graphs of the two stages share no workspace."""
    model, ready = prepared.models['a'], prepared.ready['a']
    slots = make_slots('a', model, ready, prepared.device, 2)  # type: ignore[arg-type]
    vlm, adit = prepared.device.stage('vlm'), prepared.device.stage('adit')
    ticket = make_ticket(model, requests[0], 0.0)
    inputs = stack((ticket,))
    context = vlm.launch(lambda: ready.vlm(inputs)).result().value

    def denoise() -> torch.Tensor:
        slots.admit(0, context, ticket.noise)
        for _ in range(slots.steps):
            slots.step(1)
        return slots.fetch(0)
    alone = adit.launch(denoise).result().value
    for _ in range(20):
        beside = vlm.launch(lambda: ready.vlm(inputs))
        actions = adit.launch(denoise).result().value
        torch.testing.assert_close(actions, alone, atol=0, rtol=0)
        for name, tensor in beside.result().value.items():
            torch.testing.assert_close(tensor, context[name], atol=0, rtol=0)


def test_ablation_times_every_cap(tmp_path, monkeypatch) -> None:
    from robion_ros.engine.partition import open_partitions
    partitions = open_partitions(0)
    if partitions is None:
        pytest.skip('the driver has no green contexts')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    own = prepare(make_configs({'m': 'tiny'}, {'m': 1.0}, 2.0, 1, 2, 0), 'cuda:0', 2)
    rows = list(run_ablation(own, 2, lambda text: None))
    ways = {way: [row for row in rows if row['way'] == way]
            for way in ('serial', 'no cap', 'best cap', 'fixed cap')}
    assert [len(ways[way]) for way in ('serial', 'no cap', 'best cap')] == [4, 4, 4]
    caps = {cap for cap in partitions.caps if 2 * cap >= partitions.sms}
    assert {row['cap'] for row in ways['fixed cap']} == caps
    assert len(ways['fixed cap']) == 4 * len(caps)


def test_capacity_is_measured_on_the_engine_that_is_there(prepared: Prepared) -> None:
    """A deadline that nothing meets, so that the answer is known."""
    configs = {**prepared.configs, 'a': replace(prepared.configs['a'], slo=0.001, rate=20.0)}
    found = measure_capacity(replace(prepared, configs=configs),
                             ServerConfig(('a', 'b'), 'cuda:0'), 'a', never,
                             lambda part, left: None, 1, 0.2)
    assert found.robots == 0 and found.attainment < 0.98
    assert 'gpu' in capacity_file(prepared.device).machine
