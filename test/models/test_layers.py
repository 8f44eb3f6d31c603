# SPDX-License-Identifier: Apache-2.0
"""The building blocks, each against its definition."""

import math

import pytest
import torch

from robion_ros.models import layers
from robion_ros.models.rotary import rotary


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize('kv_heads', [1, 2, 4])
@pytest.mark.parametrize('mask_rows', [None, 1, 3])
def test_attend_is_the_softmax_of_scaled_products(kv_heads, mask_rows):
    queries = tokens(2, 4, 3, 8)
    keys, values = tokens(2, kv_heads, 5, 8, seed=1), tokens(2, kv_heads, 5, 8, seed=2)
    mask = None if mask_rows is None else tokens(2, 1, mask_rows, 5, seed=3)
    wide_keys, wide_values = (x.repeat_interleave(4 // kv_heads, 1) for x in (keys, values))
    scores = queries @ wide_keys.transpose(2, 3) / math.sqrt(8)
    expected = (scores if mask is None else scores + mask).softmax(-1) @ wide_values
    torch.testing.assert_close(layers.attend(queries, keys, values, mask), expected)


def test_hidden_tokens_are_attended_to_by_nobody():
    valid = torch.tensor([[True, True, False], [True, False, True]])
    values = tokens(2, 1, 3, 4)
    mask = layers.attention_mask(valid, torch.float32)
    output = layers.attend(torch.zeros(2, 1, 1, 4), tokens(2, 1, 3, 4), values, mask)
    expected = torch.stack((values[0, :, :2].mean(1), values[1, :, ::2].mean(1)))
    torch.testing.assert_close(output, expected[:, None])


def test_cached_tokens_are_as_if_they_stood_before():
    layer = layers.DecoderLayer(16, 32, 4, 2, 8)
    layers.randomise(layer, 0)
    x, places = tokens(2, 5, 16), torch.arange(5).expand(2, 5)
    causal = torch.full((5, 5), -math.inf).triu(1)[None, None]
    with torch.no_grad():
        whole, cache = layer(x, rotary(places, 8), causal)
        _, past = layer(x[:, :3], rotary(places[:, :3], 8), causal[..., :3, :3])
        rest, own = layer(x[:, 3:], rotary(places[:, 3:], 8), causal[..., 3:, :], past)
    torch.testing.assert_close(rest, whole[:, 3:])
    torch.testing.assert_close(torch.cat((past, own), 3), cache)


def test_keys_values_are_those_of_the_layers_in_turn():
    stack = torch.nn.ModuleList(layers.DecoderLayer(16, 32, 4, 1, 8) for _ in range(3))
    layers.randomise(stack, 0)
    x, turn = tokens(1, 4, 16), rotary(torch.arange(4)[None], 8)
    mask = layers.attention_mask(torch.ones(1, 4, dtype=torch.bool), torch.float32)
    with torch.no_grad():
        found = layers.keys_values(stack, x, turn, mask)
        for index, layer in enumerate(stack):
            x, own = layer(x, turn, mask)
            torch.testing.assert_close(found[:, index], own)


def test_time_embedding_is_pi0s():
    embedded = layers.time_embedding([1.0, 0.1], 4)
    angles = [[2 * math.pi * time / period for period in (4e-3, 4.0)] for time in (1.0, 0.1)]
    expected = torch.tensor([[f(a) for f in (math.sin, math.cos) for a in row] for row in angles])
    torch.testing.assert_close(embedded, expected, atol=1e-5, rtol=0)


def test_random_weights_keep_the_size_of_what_passes_through():
    linear = torch.nn.Linear(400, 300)
    layers.randomise(linear, 7)
    assert linear(tokens(50, 400)).std().item() == pytest.approx(1, abs=0.05)
    assert not linear.bias.any()
