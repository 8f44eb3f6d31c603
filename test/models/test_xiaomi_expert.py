# SPDX-License-Identifier: Apache-2.0
"""The expert's layers; test_golden.py compares it with the original."""

import pytest
import torch
import torch.nn.functional as F

from robion_ros.models.rotary import rotary
from robion_ros.models.xiaomi_expert import XiaomiLayer

WIDTH, SIZE, OWN, KEPT = 32, 8, 4, 6


@pytest.fixture
def layer() -> XiaomiLayer:
    torch.manual_seed(0)
    made = XiaomiLayer(WIDTH, SIZE).requires_grad_(False)
    for weight in made.parameters():
        weight.uniform_(-0.5, 0.5)
    return made


def run(layer, x, cache, norms, masked=()):
    mask = torch.cat((torch.zeros(OWN, KEPT), torch.full((OWN, OWN), -torch.inf).triu(1)), 1)
    mask[:, list(masked)] = -torch.inf
    turn = rotary(torch.arange(OWN)[None].expand(len(x), -1), SIZE)
    return layer(x, turn, mask.expand(len(x), 1, -1, -1), F.pad(cache, (0, 0, 0, OWN)), norms)


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(2, OWN, WIDTH, generator=generator),
            torch.randn(2, 2, WIDTH // SIZE, KEPT, SIZE, generator=generator),
            torch.randn(6, WIDTH, generator=generator))


def test_a_token_sees_what_is_kept_and_what_came_before_it(layer, given):
    x, cache, norms = given
    before = run(layer, x, cache, norms)
    later = x.clone()
    later[:, 2] += 1
    changed = (run(layer, later, cache, norms) != before).any(-1)
    assert changed.tolist() == [[False, False, True, True]] * 2
    cache[:, :, :, 5] += 1
    assert (run(layer, x, cache, norms) != before).any(-1).all()


def test_what_is_masked_changes_nothing(layer, given):
    x, cache, norms = given
    before = run(layer, x, cache, norms, masked=[1])
    cache[:, :, :, 1] += 100
    torch.testing.assert_close(run(layer, x, cache, norms, masked=[1]), before, atol=0, rtol=0)


def test_rows_may_have_norms_of_their_own(layer, given):
    x, cache, norms = given
    own = torch.stack((norms, norms + 1), 1).unsqueeze(2)
    together = run(layer, x, cache, own)
    for row, mine in enumerate((norms, norms + 1)):
        alone = run(layer, x[row:row + 1], cache[row:row + 1], mine)
        torch.testing.assert_close(together[row:row + 1], alone, atol=1e-5, rtol=1e-5)


def test_without_gates_only_norms_are_left(layer, given):
    x, cache, norms = given
    norms[2] = norms[5] = 0
    expected = layer.final_layernorm(layer.middle_layernorm(x))
    torch.testing.assert_close(run(layer, x, cache, norms), expected, atol=1e-6, rtol=1e-6)
