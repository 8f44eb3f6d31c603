# SPDX-License-Identifier: Apache-2.0
"""Where tokens stand and how they turn, each against its definition."""

import pytest
import torch

from robion_ros.models.rotary import positions, rotary, RotaryTable, rotate


def test_positions_skip_tokens_that_are_not_there():
    valid = torch.tensor([[True, False, True, True], [False, True, True, False]])
    assert positions(valid)[valid].tolist() == [0, 1, 2, 0, 1]


def test_rotated_products_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 1, 16, generator=torch.Generator().manual_seed(0))

    def product(query_place, key_place):
        places = (torch.tensor([[place]]) for place in (query_place, key_place))
        turned = [rotate(x, rotary(place, 16))
                  for x, place in zip((query, key), places, strict=True)]
        return (turned[0] * turned[1]).sum().item()

    assert product(0, 0) == pytest.approx((query * key).sum().item(), abs=1e-5)
    assert product(7, 3) == pytest.approx(product(104, 100), abs=1e-4)
    assert product(7, 3) != pytest.approx(product(3, 7), abs=1e-2)


@pytest.mark.parametrize('base', [10_000.0, 1_000_000.0])
def test_a_table_gives_what_is_computed_for_each_place(base):
    table = RotaryTable(60, 16, torch.device('cpu'), base)
    places = torch.tensor([[0, 1, 2, 3], [0, 7, 31, 59]])
    for found, expected in zip(table(places), rotary(places, 16, base), strict=True):
        torch.testing.assert_close(found, expected)
    assert all(part.isfinite().all() for part in table(torch.tensor([[-1]])))
    with pytest.raises(IndexError):
        table(torch.tensor([[60]]))
