# SPDX-License-Identifier: Apache-2.0
"""
GR00T N1.5 sees and reads what it does in lerobot and Isaac-GR00T, from checkpoints of both.

The numbers were made by those two: see test/golden/make_gr00t.py. What the models answer is
compared in test_golden.py.
"""

import numpy as np
import pytest
import torch

from .golden import Case, EXACT, NUMBERS


@pytest.fixture(scope='module', params=['gr00t', 'gr00t_lerobot'])
def kind(request) -> str:
    return request.param


@pytest.fixture(scope='module')
def case(kind, case_of) -> Case:
    return case_of(kind)


def test_times_and_kind_of_robots_are_those_of_the_checkpoint(kind, case):
    model = case.models[0]
    assert model.denoising_steps == 4 and model.config.times == (0, 250, 500, 750)
    assert model.config.embodiment == (31 if kind == 'gr00t' else 24)
    assert model.config.context_tokens % 8 == 0


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_are_the_reference_s(case, number):
    model, inputs = case.models[number], case.inputs(number)
    found = inputs['tokens'][0][inputs['token_mask'][0]].tolist()
    wanted = case.golden(number, 'tokens').tolist()
    picture = 342  # <IMG_CONTEXT>, which stands for a picture's tokens; here none has to.
    assert found == [token for token in wanted if token != picture]
    assert wanted.count(picture) == model.config.cameras * model.config.image_tokens
    places = np.flatnonzero(np.array(wanted) == picture)
    assert places[0] == model.config.text_before[0]


@pytest.mark.parametrize('number', NUMBERS)
def test_states_are_the_reference_s(case, number):
    torch.testing.assert_close(case.inputs(number)['state'][0],
                               case.golden(number, 'network_state'), atol=0, rtol=0)


@torch.inference_mode()
def test_pictures_tokens_are_the_reference_s(case):
    net = case.models[0].network
    seen = net.vision_tower(case.inputs(0)['images'][0] / 127.5 - 1)
    torch.testing.assert_close(net.multi_modal_projector(seen), case.golden(0, 'seen'), **EXACT)


@pytest.mark.parametrize('number', NUMBERS)
@torch.inference_mode()
def test_features_are_the_reference_s(case, number):
    model = case.models[number]
    features, valid = model.read(case.inputs(number))
    torch.testing.assert_close(features[valid], case.golden(number, 'features'), **EXACT)
    torch.testing.assert_close(model.adapt(features, valid)[valid], case.golden(number, 'adapted'),
                               **EXACT)


def test_the_hand_over_is_the_reference_s(case):
    context = case.models[2].vlm(case.inputs(2))
    valid = context['valid'][0]
    for found, name in zip(context['cache'][0, 1], ('keys', 'values'), strict=True):
        torch.testing.assert_close(found.transpose(0, 1).flatten(1)[valid],
                                   case.golden(2, name), **EXACT)
    torch.testing.assert_close(context['state'][0], case.golden(2, 'state_token'), **EXACT)


def test_the_steps_of_a_chunk_last_as_long_as_those_of_the_recordings(kind, case):
    if kind == 'gr00t_lerobot':
        with pytest.raises(ValueError, match=r'step_duration: .* write 1 / the frames per'):
            case.golden.load(step_duration=0.0)
    else:
        assert case.golden.load(step_duration=0.0).spec.step_duration == 0.05
