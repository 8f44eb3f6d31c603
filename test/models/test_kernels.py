# SPDX-License-Identifier: Apache-2.0
"""An expert's kernels against the same steps in float64, and what they refuse."""

from collections.abc import Callable
import copy
from dataclasses import replace
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robion_ros.models import layers, pi0_kernels
from robion_ros.models.kernels.tiles import for_batch, Span, Tile, Tiles
from robion_ros.models.kernels.weights import Expert
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import CONFIGS

from .experts import decoder_layers, error, Inputs, make_expert, make_inputs, reference

TOLERANCE = 6e-3
"""Of the error's norm, relative to the actions': bf16 keeps 8 bits, 4e-3."""


@pytest.fixture(scope='module')
def denoise() -> Callable[..., Tensor]:
    pytest.importorskip('triton')
    from robion_ros.models.kernels.denoise import denoise
    return lambda expert, given, *rest, **options: denoise(
        expert, given.noise, given.cache, given.valid, given.turn, given.first, *rest, **options)


@pytest.fixture(scope='module')
def experts() -> dict[str, Expert]:
    return {'pi0': make_expert(False, device='cuda'), 'pi0.5': make_expert(True, device='cuda')}


def poisoned(expert: Expert, given: Inputs, tiles: Tiles | None = None) -> Any:
    """Make a workspace in which whatever is read before it was written shows."""
    from robion_ros.models.kernels.denoise import workspace
    tokens, keys = given.turn[0].shape[2], given.cache.shape[4]
    space = workspace(expert, len(given.noise), tokens, keys, tiles)
    for buffer in vars(space).values():
        buffer.fill_(math.nan)
    return space


class TestOnGpu:
    pytestmark = pytest.mark.gpu

    @pytest.mark.parametrize(('keys', 'horizon'), [(1, 50), (64, 10), (816, 15), (968, 50),
                                                   (300, 64), (130, 100)])
    def test_any_number_of_keys_and_actions(self, keys, horizon, experts, denoise):
        given = make_inputs(experts['pi0'], 2, keys, horizon)
        assert error(denoise(experts['pi0'], given),
                     reference(experts['pi0'], given)) < TOLERANCE

    def test_nothing_is_read_that_was_not_written(self, experts, denoise):
        given = make_inputs(experts['pi0'], 2)
        space = poisoned(experts['pi0'], given)
        found = denoise(experts['pi0'], given, space)
        assert error(found, reference(experts['pi0'], given)) < TOLERANCE

    @pytest.mark.parametrize('kind', ['pi0', 'pi0.5'])
    @pytest.mark.parametrize('sms', [20, 28, 36, 132])
    @pytest.mark.parametrize('batch', [1, 2, 3, 4, 8])
    def test_kernels_cut_for_any_part_compute_the_steps(self, kind, sms, batch, experts, denoise):
        expert, tiles = experts[kind], for_batch(batch, sms)
        given = make_inputs(expert, batch, seed=batch)
        space = poisoned(expert, given, tiles)
        expected = reference(expert, given)
        assert error(given.noise, expected) > 0.05  # the steps do change something
        assert error(denoise(expert, given, space, tiles), expected) < TOLERANCE

    @pytest.mark.parametrize('parts', [3, 5, 7])
    def test_parts_may_be_of_unequal_depth(self, parts, experts, denoise):
        from robion_ros.models.kernels.denoise import workspace
        given = make_inputs(experts['pi0'], 2)
        tile = Tile(128, 128, 64, 4, parts)
        tiles = replace(for_batch(2, 28), output=tile, down=tile, mix=tile)
        space = workspace(experts['pi0'], 2, 51, 817, tiles)
        space.parts.fill_(math.nan)
        assert error(denoise(experts['pi0'], given, space, tiles),
                     reference(experts['pi0'], given)) < TOLERANCE

    @pytest.mark.parametrize('hopper', [True, False])
    @pytest.mark.parametrize('span', [Span(64, 64, 1), Span(64, 32, 3), Span(64, 64, 50),
                                      Span(128, 64, 2), Span(64, 128, 1), Span(128, 128, 3)],
                             ids=str)
    @pytest.mark.parametrize('keys', [1, 64, 130, 817])
    def test_attention_is_right_in_any_blocks(self, keys, span, hopper, experts, denoise):
        if hopper and torch.cuda.get_device_capability()[0] != 9:
            pytest.skip('needs a Hopper GPU')
        given = make_inputs(experts['pi0'], 2, keys)
        tiles = replace(for_batch(2), attention=span)
        space = poisoned(experts['pi0'], given, tiles)
        found = denoise(experts['pi0'], given, space, tiles, hopper=hopper).clone()
        assert error(found, reference(experts['pi0'], given)) < TOLERANCE
        for _ in range(20):  # what is loaded ahead never overtakes what reads it
            assert torch.equal(denoise(experts['pi0'], given, space, tiles, hopper=hopper), found)

    def test_hidden_keys_change_nothing(self, experts, denoise):
        given = make_inputs(experts['pi0'], 2)
        found = denoise(experts['pi0'], given).clone()
        hidden = ~given.valid[:, None, None, None, :, None]
        given.cache.copy_(torch.where(hidden, 50 * torch.randn_like(given.cache), given.cache))
        assert torch.equal(denoise(experts['pi0'], given), found)

    def test_a_row_does_not_depend_on_its_batch(self, experts, denoise):
        given = make_inputs(experts['pi0'], 4)
        found = denoise(experts['pi0'], given)
        for row in range(4):
            part = slice(row, row + 1)
            turn = given.turn[0][part], given.turn[1][part]
            alone = denoise(experts['pi0'], Inputs(given.noise[part], given.cache[part],
                                                   given.valid[part], turn, given.first[part]))
            assert error(found[part], alone.double()) < TOLERANCE

    def test_a_cache_within_a_larger_one_is_read_in_place(self, experts, denoise):
        given = make_inputs(experts['pi0'], 2)
        large = torch.full((2, 5, 2, 1, 900, 256), math.nan, device='cuda').bfloat16()
        large[:, 1:4, :, :, :817] = given.cache
        inside = Inputs(given.noise, large[:, 1:4, :, :, :817], given.valid, given.turn,
                        given.first)
        assert torch.equal(denoise(experts['pi0'], inside), denoise(experts['pi0'], given))

    @pytest.mark.parametrize('batch', [1, 2, 4])
    @pytest.mark.parametrize('overlap', [True, False])
    def test_a_graph_computes_on_inputs_of_its_replay(self, batch, overlap, experts, denoise):
        from robion_ros.models.kernels.denoise import workspace
        expert = experts['pi0']
        given, space = make_inputs(expert, batch), workspace(expert, batch, 51, 817)
        denoise(expert, given, space, overlap=overlap)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            denoise(expert, given, space, overlap=overlap)
        for seed in range(1, 5):
            fresh = make_inputs(expert, batch, seed=seed)
            for old, new in zip(given.tensors(), fresh.tensors(), strict=True):
                old.copy_(new)
            graph.replay()
            assert error(space.actions[:, 1:], reference(expert, fresh)) < TOLERANCE
        found = space.actions[:, 1:].clone()
        for _ in range(50):
            graph.replay()
        assert torch.equal(space.actions[:, 1:], found)

    @pytest.mark.parametrize('kind', ['pi0', 'pi0.5'])
    def test_requests_at_different_steps_run_together(self, kind, experts, denoise):
        from robion_ros.models.kernels.denoise import launch, workspace
        expert = experts[kind]
        given = make_inputs(expert, 2)
        tokens = given.turn[0].shape[2]
        space = workspace(expert, 2, tokens, 817)
        run = launch(expert, given.cache, given.valid, given.turn, given.first, space)
        steps, last = torch.zeros(2, dtype=torch.int32, device='cuda'), expert.steps - 1
        actions = space.actions[:, -50:]
        for number in range(-1, expert.steps):  # The first request is one step ahead.
            if number < 1:
                actions[number + 1].copy_(given.noise[number + 1])
            if number == last:
                first = actions[0].clone()
            steps.copy_(torch.tensor([min(number + 1, last), max(number, 0)]))
            run.step(steps, given.cache)
        found = torch.stack((first, actions[1]))
        assert error(found, reference(expert, given)) < TOLERANCE

    def test_a_cache_with_gaps_between_keys_is_refused(self, experts, denoise):
        given = make_inputs(experts['pi0'], 1)
        gaps = Inputs(given.noise, given.cache[..., ::2, :], given.valid[:, ::2], given.turn)
        with pytest.raises(ValueError, match='make it contiguous'):
            denoise(experts['pi0'], gaps)


@pytest.mark.parametrize(('capability', 'overlap', 'hopper'), [
    ((8, 0), False, False), ((9, 0), True, True), ((10, 0), True, False)])
def test_what_a_gpu_can_is_used(capability, overlap, hopper, monkeypatch):
    pytest.importorskip('triton')
    from robion_ros.models.kernels.denoise import launch, workspace
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda device: capability)
    expert = make_expert(False, **SMALL | {'width': 64, 'size': 32})
    given, tiles = make_inputs(expert, 1, 40, 10), small_tiles(2)
    space = workspace(expert, 1, 11, 40, tiles)
    launcher = launch(expert, given.cache, given.valid, given.turn, given.first, space, tiles)
    assert (launcher.overlap, launcher.hopper) == (overlap, hopper)
    with pytest.raises(ValueError, match='has room for 2 splits of the keys, these are 3'):
        launch(expert, given.cache, given.valid, given.turn, given.first, space, small_tiles(1))


def small_tiles(keys_at_once):
    tile = Tile(64, 32, 32, 2)
    return Tiles(tile, Span(64, 32, keys_at_once), tile, tile, tile, tile)


@pytest.mark.parametrize('name', ['pi0_small', 'pi05_small'])
def test_an_expert_made_of_a_model_computes_as_the_model(name):
    """In float32, with weights that bfloat16 can hold, so that both have the same."""
    config = replace(CONFIGS[name], expert_hidden=64, steps=3)
    network = Pi0Network(config).requires_grad_(False)
    layers.randomise(network, 1)
    for weight in network.parameters():
        weight += 0.2 * torch.randn(weight.shape) / weight[0].numel() ** 0.5
        weight.copy_(weight.bfloat16())
    model = Pi0(config, network)
    half = Pi0(config, copy.deepcopy(network).to_layers_dtype(torch.bfloat16))
    expert = pi0_kernels.make_expert(half)
    given = make_inputs(expert, 3, keys=20, horizon=config.horizon)
    state = torch.randn(3, config.padded_size)
    first = None if config.adaptive else network.state_proj(state)
    found = reference(expert, replace(given, first=first))
    own = {} if config.adaptive else {'state': state}
    expected = model.adit({'cache': given.cache.float(), 'valid': given.valid, **own},
                          given.noise)
    torch.testing.assert_close(found.float(), expected, atol=1e-5, rtol=1e-5)


SMALL = {'width': 32, 'hidden': 64, 'heads': 2, 'size': 16, 'count': 2, 'actions': 4}


@pytest.mark.parametrize(('change', 'message'), [
    ({'width': 48}, "expert's width is 48"), ({'actions': 7}, 'size of an action is 7'),
    ({'size': 24}, 'head size is 24')], ids=['width', 'actions', 'head size'])
def test_sizes_the_kernels_do_not_take_are_refused(change, message):
    with pytest.raises(ValueError, match=f'{message}, its kernels take powers of two'):
        make_expert(True, **(SMALL | change))


@pytest.mark.parametrize('size', [8, 512])
def test_heads_too_small_or_large_for_the_kernels_are_refused(size):
    with pytest.raises(ValueError, match=f'head size is {size}, its kernels take 16 to 256'):
        make_expert(True, **(SMALL | {'size': size}))


def test_weights_the_kernels_do_not_take_are_refused():
    expert = make_expert(False, **SMALL)
    wide = tuple(layer.float() for layer in copy.deepcopy(expert.layers))
    with pytest.raises(ValueError, match=r'is torch.float32, its kernels take bfloat16'):
        Expert(wide, expert.norms, expert.ends, 3)
    grouped = decoder_layers(32, 64, 2, 16, 1, kv_heads=2)
    with pytest.raises(ValueError, match='has 2 heads of keys and values, its kernels take 1'):
        Expert(grouped, expert.norms, expert.ends, 3)


def test_adaptive_norms_and_a_mix_are_refused_together():
    mixed, adaptive = (make_expert(kind, **SMALL) for kind in (False, True))
    with pytest.raises(ValueError, match='take one of the two'):
        Expert(mixed.layers, adaptive.norms, mixed.ends, 3)
