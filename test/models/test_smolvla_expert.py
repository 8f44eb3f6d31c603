# SPDX-License-Identifier: Apache-2.0
"""The parts of SmolVLA's expert, each against its definition."""

import torch
import torch.nn.functional as F

from robion_ros.models import layers
from robion_ros.models.layers import PreciseNorm
from robion_ros.models.rotary import rotary
from robion_ros.models.smolvla_expert import JointLayer, PrefixLayer, project_again, projections

SIZES = 12, 20, 4, 2, 8
"""Width, hidden, heads, heads of keys, size of a head."""


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer_of(kind, seed=0):
    layer = kind(*SIZES, PreciseNorm).requires_grad_(False)
    layers.randomise(layer, seed)
    return layer


def test_all_layers_project_the_prefix_in_one_product():
    stack = [layer_of(PrefixLayer, seed) for seed in range(3)]
    cache = [tokens(2, 2, 2, 5, 8, seed=seed) for seed in range(3)]
    made = project_again(cache, projections(stack))
    assert made.shape == (2, 3, 2, 2, 5, 8) and made.is_contiguous()
    for index, (layer, seen) in enumerate(zip(stack, cache, strict=True)):
        for part, linear in enumerate((layer.self_attn.k_proj, layer.self_attn.v_proj)):
            rows = seen[:, part].transpose(1, 2).flatten(2)  # Heads of a token, side by side.
            wanted = linear(rows).view(2, 5, 2, 8).transpose(1, 2)
            torch.testing.assert_close(made[:, index, part], wanted, atol=1e-6, rtol=1e-5)


def plain(layer, x, queries, keys, values, mask):
    """Return what a layer makes of x and of what its heads attend to."""
    keys, values = (heads.repeat_interleave(2, 1) for heads in (keys, values))
    shares = (queries @ keys.transpose(2, 3) / 8 ** 0.5 + mask).softmax(-1)
    x = x + layer.self_attn.o_proj((shares @ values).transpose(1, 2).flatten(2))
    y, mlp = layer.post_attention_layernorm(x), layer.mlp
    gate, up = mlp.gate_up(y).chunk(2, -1)
    return x + mlp.down_proj(F.silu(gate) * up)


def test_actions_see_the_prefix_and_those_before_them():
    layer, x = layer_of(JointLayer), tokens(2, 3, 12)
    turn = rotary(torch.arange(3)[None] + 2, 8)
    room, mask = tokens(2, 2, 2, 5, 8, seed=1), torch.zeros(2, 1, 3, 5)
    mask[..., 2:] = torch.full((3, 3), -torch.inf).triu(1)
    mask[1, ..., 0] = -torch.inf
    before = room.clone()
    queries, own = layer.self_attn.project(layer.input_layernorm(x), turn)
    keys, values = torch.cat((before[..., :2, :], own), 3).unbind(1)
    found = layer(x, turn, mask, room)
    torch.testing.assert_close(found, plain(layer, x, queries, keys, values, mask))
    torch.testing.assert_close(room[..., :2, :], before[..., :2, :], atol=0, rtol=0)
    torch.testing.assert_close(room[..., 2:, :], own, atol=0, rtol=0)


def test_in_other_layers_actions_see_the_prefix_alone():
    layer, x, seen = layer_of(PrefixLayer), tokens(2, 3, 12), tokens(2, 2, 2, 5, 8, seed=1)
    turn, mask = rotary(torch.arange(3)[None], 8), torch.zeros(2, 1, 1, 5)
    mask[1, ..., 0] = -torch.inf
    queries = layer.self_attn.queries(layer.input_layernorm(x), turn)
    keys, values = seen.unbind(1)
    torch.testing.assert_close(layer(x, turn, mask, seen),
                               plain(layer, x, queries, keys, values, mask))
    alone = layer(x[:, 1:2], tuple(table[:, :, 1:2] for table in turn), mask, seen)
    torch.testing.assert_close(layer(x, turn, mask, seen)[:, 1:2], alone)
