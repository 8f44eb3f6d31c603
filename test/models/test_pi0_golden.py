# SPDX-License-Identifier: Apache-2.0
"""
pi0 and pi0.5 see and read what they do in lerobot and openpi, from checkpoints of both.

The numbers were made by those two: see test/golden/make_pi0.py and make_openpi.py. What the model
of lerobot's checkpoint answers is compared in test_golden.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file
import torch

from robion_ros.models import layers

from .golden import Case, EXACT, FOLDER, GOLDEN, NUMBERS, openpi_folder


@pytest.fixture(scope='module', params=['pi0', 'pi05'])
def case(request, case_of) -> Case:
    return case_of(request.param)


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_and_states_are_the_reference_s(case, number):
    golden, inputs = case.golden, case.inputs(number)
    assert torch.equal(inputs['tokens'][0], golden(number, 'tokens').long())
    assert torch.equal(inputs['token_mask'][0], golden(number, 'token_mask'))
    if golden.name == 'pi0':
        state = inputs['state'][0]
        torch.testing.assert_close(state[:8], golden(number, 'state'), atol=0, rtol=0)
        assert not state[8:].any()


@pytest.mark.parametrize('number', NUMBERS)
def test_keys_and_values_of_the_prefix_are_the_reference_s(case, number):
    context = case.models[number].vlm(case.inputs(number))
    # Missing cameras come last there, and are not computed here.
    found = context['cache'][0][..., context['valid'][0], :]
    wanted = case.golden(number, 'cache')[..., case.golden(number, 'valid'), :]
    torch.testing.assert_close(found, wanted, **EXACT)


OPENPI = {'pi0': ('pi0', {}), 'pi05': ('pi05', {}),
          'pi05_plain': ('pi05', {'discrete_state_input': False})}
OBSERVED = GOLDEN['pi0']
"""Has the observations of all of them."""


@pytest.fixture(scope='module', params=OPENPI)
def name(request) -> str:
    return request.param


@pytest.fixture(scope='module')
def converted(name, tmp_path_factory) -> Case:
    """Return the models of a checkpoint of openpi for the robots of pi0's observations."""
    kind, fields = OPENPI[name]
    folder = openpi_folder(tmp_path_factory.mktemp(name) / 'converted', kind, **fields)
    return Case(replace(OBSERVED, architecture=kind, checkpoint=folder, tokenizer=''))


@pytest.fixture(scope='module')
def openpi():
    return load_file(FOLDER / 'openpi.safetensors')


@pytest.mark.parametrize('number', NUMBERS)
def test_openpi_s_checkpoints_give_what_openpi_gives(openpi, name, converted, number):
    model, inputs = converted.models[number], converted.inputs(number)
    assert torch.equal(inputs['tokens'][0], openpi[f'{name}.{number}.tokens'].long())
    if name == 'pi0':
        torch.testing.assert_close(inputs['state'][0], openpi[f'{name}.{number}.state'],
                                   atol=0, rtol=1e-6)
    noise = OBSERVED(number, 'noise')[None, :model.spec.horizon]
    actions = model.postprocess(model.adit(model.vlm(inputs), noise)[0],
                                OBSERVED.observation(number))
    np.testing.assert_allclose(actions, openpi[f'{name}.{number}.actions'], atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize('name', ['pi0'], indirect=True)
def test_openpi_s_pictures_are_pillow_s(openpi, converted):
    assert torch.equal(converted.inputs(0)['images'][0], openpi['images'])


def test_the_time_is_that_of_the_code_a_checkpoint_comes_from(case):
    config = case.models[0].config
    added = replace(config, times_added_up=True, steps=10).times
    assert added[:2] == (1.0, float(np.float32(0.9)))
    assert added != replace(config, steps=10).times
    np.testing.assert_allclose(added, replace(config, steps=10).times, atol=1e-6)
    assert layers.time_embedding(added, 8).shape == (10, 8)
