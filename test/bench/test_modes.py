# SPDX-License-Identifier: Apache-2.0
"""Every mode gives the same chunks for the same requests, each once."""

from collections.abc import Mapping
from threading import Condition
from typing import get_args

import numpy as np
import pytest

from robion_ros.bench.modes import find_obstacle, find_second, make_pipeline, ModeOptions, uncapped
from robion_ros.bench.observations import Observations
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.settings import BenchError, Mode
from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk, Outcome, Request
from robion_ros.engine.engine import Engine

MODES = get_args(Mode)
NUMBERS = range(1, 13)
TIMEOUT = 20.0


def requests_for(prepared: Prepared) -> list[Request]:
    """Return requests of robots of both models."""
    source = Observations(2, 3, 48, 64, 1)
    names = sorted(prepared.models)
    return [Request(f'robot_{number}', number, names[number % 2], source.make(), 0.0, 1e9)
            for number in NUMBERS]


def serve(prepared: Prepared, mode: Mode, options: ModeOptions,
          requests: list[Request]) -> Mapping[int, Outcome]:
    """Serve requests, all at once, in a mode; return the outcomes by number."""
    outcomes: list[Outcome] = []
    changed = Condition()

    def hear(outcome: Outcome) -> None:
        with changed:
            outcomes.append(outcome)
            changed.notify_all()
    server = ServerConfig(tuple(prepared.ready), 'cpu')
    engine = Engine(prepared.ready, make_pipeline(mode, prepared, options), server, hear)
    engine.assign(1, {request.robot: request.model for request in requests})
    for request in requests:
        engine.submit(request)
    with changed:
        assert changed.wait_for(lambda: len(outcomes) >= len(requests), TIMEOUT)
    engine.stop()
    assert sorted(outcome.request.number for outcome in outcomes) == sorted(
        request.number for request in requests)
    return {outcome.request.number: outcome for outcome in outcomes}


@pytest.fixture(scope='module', params=['tiny', 'pi0'])
def models(request: pytest.FixtureRequest) -> Prepared:
    return request.getfixturevalue({'tiny': 'prepared', 'pi0': 'prepared_pi0'}[request.param])


@pytest.mark.parametrize('mode', [mode for mode in MODES if mode != 'monolithic'])
def test_chunks_are_those_of_monolithic(models: Prepared, kit, mode: Mode) -> None:
    requests = requests_for(models)
    expected = serve(models, 'monolithic', kit.OPTIONS, requests)
    found = serve(models, mode, kit.OPTIONS, requests)
    for number in NUMBERS:
        chunk, other = found[number], expected[number]
        assert isinstance(chunk, ActionChunk) and isinstance(other, ActionChunk)
        np.testing.assert_allclose(chunk.actions, other.actions, atol=1e-5)
        times = chunk.timings
        assert times.vlm > 0 and times.adit > 0 and chunk.batch in (1, 2)
        assert times.engine >= times.queue


@pytest.mark.parametrize('options', [ModeOptions(1, 1), ModeOptions(3, 1), ModeOptions(8, 8)],
                         ids=['one slot', 'three slots', 'much room'])
def test_stepwise_gives_the_same_whatever_its_sizes(prepared: Prepared, kit,
                                                    options: ModeOptions) -> None:
    requests = requests_for(prepared)
    expected = serve(prepared, 'monolithic', kit.OPTIONS, requests)
    for number, chunk in serve(prepared, 'stepwise', options, requests).items():
        assert isinstance(chunk, ActionChunk)
        np.testing.assert_allclose(chunk.actions, expected[number].actions, atol=1e-5)


def test_split_without_a_second_device_is_refused(prepared: Prepared) -> None:
    with pytest.raises(BenchError, match=r"mode 'split' cannot be measured.*second GPU"):
        make_pipeline('split', prepared, ModeOptions())


def test_stepwise_needs_models_of_single_steps(kit) -> None:
    class Whole:
        spec = type('Spec', (), {'architecture': 'whole'})
    prepared = Prepared({}, None, 2, {'m': Whole()}, {})  # type: ignore[arg-type, dict-item]
    assert 'whole has no single denoising step' in find_obstacle('stepwise', prepared,
                                                                 ModeOptions())
    assert find_obstacle('lockstep', prepared, ModeOptions()) == ''


def test_a_second_device_is_the_one_given_or_none_on_a_cpu() -> None:
    assert find_second('cpu', '') == '' and find_second('cpu', 'cpu') == 'cpu'


def test_two_streams_run_without_a_cap() -> None:
    class Guarded:
        spec = 'spec'

        def pack(self, inputs, noise):
            return inputs

        def vlm_beside(self, rows, beside):
            return rows, beside

        def adit_beside(self, context, noise, beside):
            return context, beside
    model = uncapped({'m': Guarded(), 'plain': object()})  # type: ignore[dict-item]
    assert model['m'].vlm_beside('rows', 'load') == ('rows', None)  # type: ignore[attr-defined]
    assert model['m'].adit_beside('c', 'n', 'load') == ('c', None)  # type: ignore[attr-defined]
    assert model['m'].spec == 'spec'
    assert not hasattr(model['plain'], 'vlm_beside')
