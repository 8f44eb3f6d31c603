# SPDX-License-Identifier: Apache-2.0
"""What Qwen3-VL adds to Qwen3; test_xiaomi_golden.py compares it with the original."""

import torch

from robion_ros.models.qwen3_vl import ABSENT, axes, causal_mask, interpolated, VisionTower


def test_pairs_turn_by_time_rows_and_columns_in_turn():
    found = axes((24, 20, 20))
    assert found.bincount().tolist() == [24, 20, 20]
    assert found[:6].tolist() == [0, 1, 2, 0, 1, 2] and found[60:].tolist() == [0] * 4


def test_a_token_sees_those_read_before_it_and_no_absent_one():
    order = torch.tensor([[1, 2, 0, ABSENT]])
    seen = causal_mask(order, torch.float32)[0, 0] == 0
    assert seen.tolist() == [[True, False, True, False], [True, True, True, False],
                             [False, False, True, False], [True, True, True, True]]


def test_places_that_were_trained_stay_as_they_are():
    table = torch.arange(18.0).view(9, 2)
    assert torch.equal(interpolated(table, 3, 3), table)
    assert interpolated(table, 5, 2)[:4].tolist() == [[0, 1], [4, 5], [3, 4], [7, 8]]


def test_a_token_is_made_of_the_patches_of_one_square():
    tower = VisionTower(4, 2, 2, 16, 8, 8, 2, 1, (0,), 8)
    torch.manual_seed(0)
    for weight in tower.parameters():
        weight.data.uniform_(-1, 1)
    tower.blocks = torch.nn.ModuleList()
    images = torch.rand(1, 16, 24, 3)
    grid = tower.grid(16, 24)
    before, _ = tower(images, tower.kernel(), grid)
    images[0, 9, 18] += 1
    after, _ = tower(images, tower.kernel(), grid)
    changed = (before != after).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == [5]
