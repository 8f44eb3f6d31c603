# SPDX-License-Identifier: Apache-2.0
"""
SmolVLA sees and reads what it does in lerobot.

The numbers were made by lerobot: see test/golden/make_smolvla.py. What the model answers is
compared in test_golden.py: both agree to 2e-7 of chunks of order one, and another epsilon in the
norms moves them by 1e-4.
"""

import pytest
import torch

from .golden import Case, EXACT, NUMBERS


@pytest.fixture(scope='module')
def case(case_of) -> Case:
    return case_of('smolvla')


def existing(tensor: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Return keys and values [..., K, D] of the tokens that exist."""
    return tensor[..., valid, :]


def test_layers_are_those_of_the_checkpoint(case):
    config = case.models[0].config
    assert (config.heads, config.kv_heads, config.head_size) == (4, 2, 64)
    assert (config.image_size, config.patch_size, config.shuffle, config.layers) == (64, 8, 4, 4)


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_and_states_are_the_reference_s(case, number):
    golden = case.golden
    tokens, mask, state = (case.inputs(number)[name][0] for name in ('tokens', 'token_mask',
                                                                     'state'))
    assert tokens.shape == (48,)
    assert golden(number, 'token_mask').all()
    assert torch.equal(tokens[mask], golden(number, 'tokens').long())
    torch.testing.assert_close(state[:6], golden(number, 'state'), atol=0, rtol=0)
    assert not state[6:].any()


@pytest.mark.parametrize('number', NUMBERS)
def test_tokens_of_the_prefix_are_the_reference_s(case, number):
    found, valid = case.models[number].prefix(case.inputs(number))
    # Missing cameras come after the present ones there, and are not computed here.
    wanted = case.golden(number, 'prefix')[case.golden(number, 'valid')]
    torch.testing.assert_close(found[valid], wanted, **EXACT)


def test_keys_and_values_of_the_prefix_are_the_reference_s(case):
    golden, context = case.golden, case.models[1].vlm(case.inputs(1))
    there, here = golden(1, 'valid'), context['valid'][0]
    torch.testing.assert_close(existing(context['joint'][0], here),
                               existing(golden(1, 'cache')[::2], there), **EXACT)
    torch.testing.assert_close(existing(context['prefix'][0], here),
                               existing(golden(1, 'cross'), there), **EXACT)
