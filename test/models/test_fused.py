# SPDX-License-Identifier: Apache-2.0
"""Operations with kernels of their own against their definitions, and where they are used."""

import copy
import math

import pytest
import torch
from torch import nn, Tensor
import torch.nn.functional as F

from robion_ros.models import fused, layers
from robion_ros.models.rotary import rotary, rotate

from .experts import error

TOLERANCE = 6e-3
"""Of the error's norm, relative to the result's: bf16 keeps 8 bits, 4e-3."""


def normal(*shape: int, seed: int = 0, device: str = 'cuda') -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, device=device, generator=generator).bfloat16()


def key_mask(batch: int, keys: int, seed: int = 0) -> Tensor:
    valid = torch.rand(batch, keys, generator=torch.Generator().manual_seed(seed)) < 0.8
    valid[0, :keys // 2] = False  # whole blocks of keys that do not exist
    return layers.attention_mask(valid.cuda(), torch.bfloat16)


def causal(batch: int, tokens: int, keys: int) -> Tensor:
    hidden = torch.full((tokens, keys), -math.inf).triu(keys - tokens + 1)
    return hidden.bfloat16().cuda().expand(batch, 1, -1, -1).contiguous()


def attended(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """In float64, head by head, [B, T, H, D]."""
    wide = queries.shape[1] // keys.shape[1]
    keys, values = (x.double().repeat_interleave(wide, 1) for x in (keys, values))
    scores = queries.double() @ keys.transpose(2, 3) / math.sqrt(queries.shape[3])
    return ((scores + mask.double()).softmax(-1) @ values).transpose(1, 2)


class TestOnGpu:
    pytestmark = pytest.mark.gpu

    @pytest.mark.parametrize(('heads', 'groups', 'size'), [
        (8, 1, 256), (15, 5, 64), (16, 8, 128), (12, 12, 72), (4, 2, 16), (2, 2, 8)])
    @pytest.mark.parametrize(('batch', 'tokens', 'keys'), [
        (1, 816, 816), (2, 816, 816), (4, 300, 417), (3, 1, 65), (1, 64, 70)])
    @pytest.mark.parametrize('by_token', [False, True])
    def test_attend(self, heads, groups, size, batch, tokens, keys, by_token):
        queries = normal(batch, tokens, heads, size).transpose(1, 2)
        own = normal(batch, 2, groups, keys, size, seed=1)
        mask = causal(batch, tokens, keys) if by_token else key_mask(batch, keys)
        found = fused.attend(queries, *own.unbind(1), mask)
        assert error(found, attended(queries, *own.unbind(1), mask)) < TOLERANCE

    @pytest.mark.parametrize('by_token', [False, True])
    def test_attend_adds_any_mask_wherever_its_parts_lie(self, by_token):
        queries, own = normal(3, 8, 90, 64), normal(3, 2, 4, 130, 64, seed=1)
        mask = (2 * normal(3, 1, 200, 300, seed=2))[..., 7:97 if by_token else 8, 16:146]
        found = fused.attend(queries, *own.unbind(1), mask)
        assert error(found, attended(queries, *own.unbind(1), mask)) < TOLERANCE
        same = mask[:1].expand(3, -1, -1, -1)
        found = fused.attend(queries, *own.unbind(1), same)
        assert error(found, attended(queries, *own.unbind(1), same)) < TOLERANCE

    def test_attend_takes_scores_that_are_all_far_below_zero(self):
        queries = torch.full((1, 2, 70, 64), 8.0, device='cuda').bfloat16()
        keys, values = normal(1, 1, 90, 64) - 40, normal(1, 1, 90, 64, seed=1)
        mask = torch.zeros(1, 1, 1, 90, device='cuda').bfloat16()
        found = fused.attend(queries, keys, values, mask)
        assert error(found, attended(queries, keys, values, mask)) < TOLERANCE

    def test_keys_that_are_hidden_change_nothing(self):
        queries, own = normal(2, 8, 200, 256), normal(2, 2, 1, 200, 256, seed=1)
        mask = key_mask(2, 200)
        found = fused.attend(queries, *own.unbind(1), mask)
        own = torch.where(mask[..., None] == 0, own, 50 * own)
        assert torch.equal(fused.attend(queries, *own.unbind(1), mask), found)

    def test_who_may_see_nothing_gets_zeros(self):
        queries, own = normal(1, 8, 200, 256), normal(1, 2, 1, 200, 256, seed=1)
        mask = torch.full((1, 1, 1, 200), -math.inf, device='cuda').bfloat16()
        assert not fused.attend(queries, *own.unbind(1), mask).any()

    @pytest.mark.parametrize('silu', [False, True])
    @pytest.mark.parametrize(('rows', 'width', 'hidden'), [
        (1632, 2048, 16384), (816, 2048, 1024), (1, 64, 128), (129, 960, 2560), (3000, 128, 256)])
    def test_gated(self, silu, rows, width, hidden):
        x = normal(1, rows, width)
        weights = normal(2 * hidden, width, seed=1) / math.sqrt(width)
        gate, up = (x.double() @ weights.double().t()).chunk(2, -1)
        act = F.silu if silu else layers.gelu_tanh
        assert error(fused.gated(x, weights, silu), act(gate) * up) < TOLERANCE

    def test_gates_below_zero_are_those_of_the_activation(self):
        weights = torch.zeros(256, 64, device='cuda').bfloat16()
        weights[:128, 0], weights[128:, 0] = 1, 64
        x = torch.zeros(1, 96, 64, device='cuda').bfloat16()
        x[0, :, 0] = -torch.arange(1, 97, device='cuda') / 32
        for silu, act in ((False, layers.gelu_tanh), (True, F.silu)):
            gate = x[0, :, :1].double()
            expected = (act(gate) * 64 * gate).expand(-1, 128)
            torch.testing.assert_close(fused.gated(x, weights, silu)[0].double(), expected,
                                       rtol=1e-2, atol=0)

    def test_a_gate_far_from_zero_is_no_nan(self):
        x, weights = torch.eye(128, device='cuda').bfloat16(), normal(256, 128) * 1e4
        gate, up = weights.double().t().chunk(2, -1)
        for silu, act in ((False, layers.gelu_tanh), (True, F.silu)):
            assert error(fused.gated(x[None], weights, silu)[0], act(gate) * up) < TOLERANCE

    @pytest.mark.parametrize('width', [1152, 768, 48])
    def test_add_norm(self, width):
        x, change = 3 * normal(2, 300, width), 2 + normal(2, 300, width, seed=1)
        weight, bias = normal(width, seed=2), normal(width, seed=3)
        total, norm = fused.add_norm(x, change, weight, bias, 1e-6)
        assert torch.equal(total, x + change)
        expected = F.layer_norm(total.double(), (width,), weight.double(), bias.double(), 1e-6)
        assert error(norm, expected) < TOLERANCE

    def test_a_norm_is_that_of_the_rounded_sum_and_of_small_numbers(self):
        weight, bias = (torch.full((1152,), value, device='cuda').bfloat16() for value in (1, 0))
        large = torch.full((4, 1152), 256.0, device='cuda').bfloat16(), normal(4, 1152)
        small = 1e-3 * normal(4, 1152), 1e-3 * normal(4, 1152, seed=1)
        for x, change in (large, small):
            _, norm = fused.add_norm(x, change, weight, bias, 1e-6)
            expected = F.layer_norm((x + change).double(), (1152,), eps=1e-6)
            assert error(norm, expected) < TOLERANCE

    @pytest.mark.parametrize(('heads', 'groups', 'size'), [(8, 1, 256), (15, 5, 64), (2, 2, 16)])
    @pytest.mark.parametrize('same', [False, True], ids=['places of each', 'of all'])
    def test_turn_heads(self, heads, groups, size, same):
        qkv = normal(2, 150, (heads + 2 * groups) * size)
        places = torch.randint(0, 900, (1 if same else 2, 150), device='cuda')
        turn = rotary(places, size)
        queries, own = fused.turn_heads(qkv, *turn, heads, size)
        apart = qkv.double().view(2, 150, -1, size).transpose(1, 2)
        exact = turn[0].double(), turn[1].double()
        q, k, v = apart.split((heads, groups, groups), 1)
        assert error(queries.transpose(1, 2), rotate(q, exact)) < TOLERANCE
        assert error(own[:, 0], rotate(k, exact)) < TOLERANCE
        assert torch.equal(own[:, 1].double(), v)

    @pytest.mark.parametrize('compiled', [False, True])
    @pytest.mark.parametrize(('activation', 'sizes'), [
        (layers.gelu_tanh, (2048, 16384, 8, 1, 256)), (F.silu, (960, 2560, 15, 5, 64))])
    def test_a_layer_computes_what_it_does_in_float64(self, compiled, activation, sizes):
        torch._dynamo.reset()
        layer = layers.DecoderLayer(*sizes, activation).requires_grad_(False)
        layers.randomise(layer, 1)
        layer = layer.bfloat16().cuda()
        exact, mask = copy.deepcopy(layer).double(), key_mask(2, 816)
        run = torch.compile(layer, dynamic=False) if compiled else layer
        turn = rotary(torch.arange(816, device='cuda').expand(2, -1), sizes[4])
        for seed in range(2):
            x = normal(2, 816, sizes[0], seed=seed)
            with torch.inference_mode():
                found = run(x, turn, mask)
                expected = exact(x.double(), tuple(t.double() for t in turn), mask.double())
            for mine, other in zip(found, expected, strict=True):
                assert error(mine, other) < 2 * TOLERANCE

    def test_a_graph_computes_on_inputs_of_its_replay(self):
        tower = layers.VisionTransformer(224, 14, 1152, 4304, 16, 2).requires_grad_(False)
        layers.randomise(tower, 1)
        tower = tower.bfloat16().cuda()
        exact, static = copy.deepcopy(tower).double(), normal(3, 224, 224, 3)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode():
            tower(static)
            with torch.cuda.graph(graph):
                found = tower(static)
            for seed in range(1, 4):
                static.copy_(normal(3, 224, 224, 3, seed=seed))
                graph.replay()
                assert error(found, exact(static.double())) < 2 * TOLERANCE

    def test_a_compiler_may_rely_on_what_operations_say_of_themselves(self):
        x, own = normal(2, 8, 200, 256), normal(2, 2, 1, 200, 256, seed=1)
        turn = rotary(torch.arange(200, device='cuda')[None], 256)
        qkv, row = normal(2, 200, 2560), normal(2560)
        torch.library.opcheck(fused.attend, (x, *own.unbind(1), key_mask(2, 200)))
        torch.library.opcheck(fused.gated, (qkv, normal(256, 2560), True))
        torch.library.opcheck(fused.add_norm, (qkv, qkv, row, row, 1e-6))
        torch.library.opcheck(fused.turn_heads, (qkv, *turn, 8, 256))

    def test_they_are_used_where_they_are_faster(self):
        for batch in (1, 2, 4):
            x, weights = normal(batch, 816, 2048), normal(2 * 16384, 2048)
            heads, keys, mask = normal(batch, 8, 816, 256), normal(batch, 1, 816, 256), (
                key_mask(batch, 816))
            assert fused.takes_gated(x, weights) and fused.takes_turn(x, 256)
            assert fused.takes_attention(heads, keys, mask)
        assert not fused.takes_gated(normal(1, 51, 2048), weights)
        assert not fused.takes_turn(normal(1, 51, 2048), 256)
        assert not fused.takes_turn(x, 72)
        assert not fused.takes_attention(heads, keys, causal(4, 816, 816))
        assert not fused.takes_attention(heads.float(), keys.float(), mask)
        assert not fused.takes_attention(heads, keys, mask[:1])
        assert not fused.takes_attention(heads, keys, mask.expand(-1, 8, -1, -1))
        assert not fused.takes_attention(heads[:0], keys[:0], mask[:0])
        assert not fused.takes_gated(x, normal(2 * 16380, 2048))


def test_elsewhere_layers_do_without_them():
    x = torch.randn(1, 816, 2048).bfloat16()
    heads, mask = torch.randn(1, 8, 816, 256).bfloat16(), torch.zeros(1, 1, 1, 816).bfloat16()
    assert not fused.can_run(x)
    assert not fused.takes_attention(heads, heads, mask)
    assert not fused.takes_gated(x, torch.empty(2 * 16384, 2048, dtype=torch.bfloat16))
    assert not fused.takes_turn(x, 256)


def test_a_norm_may_take_its_residual_with_it():
    norm = nn.LayerNorm(48).requires_grad_(False)
    nn.init.normal_(norm.weight)
    x, change = torch.randn(2, 5, 48), torch.randn(2, 5, 48)
    total, normed = layers.add_norm(x, change, norm)
    assert torch.equal(total, x + change)
    assert torch.equal(normed, norm(x + change))
