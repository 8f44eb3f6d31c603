# SPDX-License-Identifier: Apache-2.0
"""The blocks that kernels work in, and models that they do not fit."""

from types import SimpleNamespace

import pytest
import torch

from robion_ros.models import layers, pi0_kernels
from robion_ros.models.kernels import tiles
from robion_ros.models.pi0 import Pi0, Pi0Network
from robion_ros.models.pi0_config import CONFIGS


@pytest.mark.parametrize('sms', [None, 1, 8, 16, 24, 32, 64, 100, 132, 300])
@pytest.mark.parametrize('batch', [*range(1, 9), 16])
def test_tiles_divide_the_work_of_pi0_and_fit_a_gpu(batch, sms):
    chosen = tiles.for_batch(batch, sms)
    for tile, columns, depth in ((chosen.qkv, 2560, 1024), (chosen.output, 1024, 2048),
                                 (chosen.gate_up, 8192, 1024), (chosen.down, 1024, 4096),
                                 (chosen.mix, 1024, 1024)):
        assert columns % tile.columns == 0
        assert depth % tile.depth == 0
        assert tile.parts * tile.depth <= depth
        assert 2 * tile.stages * tile.depth * (tile.rows + tile.columns) < 227 * 1024
    span = chosen.attention
    assert span.rows % 64 == 0
    assert 2 * 256 * (span.rows + 2 * span.keys) < 227 * 1024
    assert chosen.qkv.columns // 2 <= 128  # both halves of one head
    assert (chosen.qkv.parts, chosen.gate_up.parts) == (1, 1)  # nobody would add them


@pytest.mark.parametrize(('span', 'past', 'own', 'splits'), [
    (tiles.Span(64, 64, 3), 816, 51, 5), (tiles.Span(64, 64, 3), 768, 51, 5),
    (tiles.Span(64, 64, 3), 704, 51, 4), (tiles.Span(64, 64, 1), 1, 1, 2),
    (tiles.Span(128, 32, 2), 64, 33, 2), (tiles.Span(64, 128, 50), 816, 51, 1)], ids=str)
def test_every_key_is_in_a_split(span, past, own, splits):
    assert span.splits(past, own) == splits
    assert span.warps == {64: 4, 128: 8}[span.rows]


def test_a_gpu_without_room_for_kernels_runs_without_them(caplog, monkeypatch):
    monkeypatch.setattr(pi0_kernels, 'make_expert', lambda model: None)
    monkeypatch.setattr(pi0_kernels, 'Pi0Kernels', lambda expert: 'kernels')
    gpu = SimpleNamespace(major=9, shared_memory_per_block_optin=232_448)
    monkeypatch.setattr(torch.cuda, 'get_device_properties', lambda device: gpu)
    config = CONFIGS['pi0_small']
    model = Pi0(config, Pi0Network(config).requires_grad_(False))
    assert pi0_kernels.open_kernels(model) == 'kernels'
    for lack in ({'shared_memory_per_block_optin': 101_376}, {'major': 8}):
        monkeypatch.setattr(torch.cuda, 'get_device_properties',
                            lambda device, lack=lack: SimpleNamespace(**(vars(gpu) | lack)))
        caplog.clear()
        with caplog.at_level('INFO'):
            assert pi0_kernels.open_kernels(model) is None
        assert 'a block may have 227 KB of shared memory' in caplog.text


def test_a_model_too_small_for_kernels_runs_without_them(caplog):
    pytest.importorskip('triton')
    config = CONFIGS['pi0_small']
    network = Pi0Network(config).requires_grad_(False).to_layers_dtype(torch.bfloat16)
    layers.randomise(network, 1)
    with caplog.at_level('INFO'):
        assert pi0_kernels.open_kernels(Pi0(config, network)) is None
    assert 'pi0_small: the ADiT stage runs without its kernels, slower:' in caplog.text
