# SPDX-License-Identifier: Apache-2.0
"""The action expert's parts, each against its definition."""

import pytest
import torch

from robion_ros.models import layers
from robion_ros.models.expert import AdaptiveNorm, attend_few, ExpertLayer, GemmaNorm, modulated
from robion_ros.models.rotary import rotary


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize('kv_heads', [1, 2, 4])
def test_few_queries_attend_like_many(kv_heads):
    queries = tokens(2, 4, 3, 8)
    keys, values = tokens(2, kv_heads, 5, 8, seed=1), tokens(2, kv_heads, 5, 8, seed=2)
    mask = layers.attention_mask(torch.tensor([[True] * 5, [True, False, True, True, False]]),
                                 torch.float32)
    torch.testing.assert_close(attend_few(queries, keys, values, mask),
                               layers.attend(queries, keys, values, mask))


def test_few_queries_attend_to_what_each_of_them_may():
    queries, keys, values = (tokens(2, heads, count, 8, seed=count)
                             for heads, count in ((4, 3), (2, 5), (2, 5)))
    mask = torch.full((2, 1, 3, 5), -torch.inf).triu(2)
    mask[1, ..., 0] = -torch.inf
    torch.testing.assert_close(attend_few(queries, keys, values, mask),
                               layers.attend(queries, keys, values, mask))


def test_closed_gates_leave_the_tokens_as_they_came():
    layer = ExpertLayer(8, 16, 2, 1, 4, AdaptiveNorm)
    layers.randomise(layer, 0)
    x, room = tokens(1, 3, 8), tokens(1, 2, 1, 5, 4, seed=1)
    turn, mask = rotary(torch.arange(3)[None], 4), torch.zeros(1, 1, 1, 5)
    norms = tokens(2, 3, 8, seed=2)
    before = room.clone()
    with torch.no_grad():
        assert not torch.allclose(layer(x, turn, mask, room, norms), x)
        norms[:, 2] = 0
        torch.testing.assert_close(layer(x, turn, mask, room, norms), x, atol=0, rtol=0)
    torch.testing.assert_close(room[..., :2, :], before[..., :2, :], atol=0, rtol=0)
    assert not torch.equal(room[..., 2:, :], before[..., 2:, :])


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16], ids=str)
def test_gemmas_norm_is_the_modulated_one_with_a_fixed_modulation(dtype):
    norm, x = GemmaNorm(8), (3 * tokens(2, 5, 8)).to(dtype)
    with torch.no_grad():
        norm.weight.copy_(tokens(8, seed=1))
        modulation = norm.modulation(tokens(4, 8))
        assert modulation.shape == (4, 3, 8) and (modulation[:, 2] == 1).all()
        wide = x.double()
        expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        expected = (expected * (1 + norm.weight)).to(dtype)
        for index in (0, 3):
            torch.testing.assert_close(modulated(x, modulation[index]), expected)
        torch.testing.assert_close(norm(x), expected)


def test_adaptive_norms_scale_shift_and_gate_come_in_this_order():
    norm = AdaptiveNorm(2)
    with torch.no_grad():
        norm.dense.weight.zero_()
        norm.dense.bias.copy_(torch.arange(6.0))
        modulation = norm.modulation(torch.zeros(1, 2))
    assert modulation.tolist() == [[[0, 1], [2, 3], [4, 5]]]
    moved = modulated(torch.tensor([1.0, -1.0]), modulation[0])
    torch.testing.assert_close(moved, torch.tensor([3.0, 1.0]), atol=1e-5, rtol=0)
