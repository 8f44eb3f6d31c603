# SPDX-License-Identifier: Apache-2.0
"""What stands beside Xiaomi's weights; test_xiaomi_checkpoint.py has its errors."""

from hypothesis import assume, given
from hypothesis import strategies as st
import numpy as np
import pytest

from robion_ros.models.mibot_folder import LEAST_PIXELS, MOST_PIXELS, smart_size, Statistics


@pytest.mark.parametrize('size, least, most, seen', [
    ((256, 256), LEAST_PIXELS, MOST_PIXELS, (256, 256)),
    ((200, 200), LEAST_PIXELS, MOST_PIXELS, (192, 192)),
    ((84, 84), LEAST_PIXELS, MOST_PIXELS, (96, 96)),
    ((256, 320), LEAST_PIXELS, MOST_PIXELS, (256, 320)),
    ((480, 640), LEAST_PIXELS, 90_000, (256, 320)),
    ((200, 200), 65_536, MOST_PIXELS, (256, 256)),
])
def test_a_picture_becomes_a_whole_number_of_tokens(size, least, most, seen):
    assert smart_size(*size, 32, least, most) == seen


@given(st.integers(32, 2000), st.integers(32, 2000))
def test_no_picture_is_larger_or_smaller_than_is_said(rows, columns):
    assume(max(rows, columns) < 20 * min(rows, columns))
    found = smart_size(rows, columns, 32, LEAST_PIXELS, MOST_PIXELS)
    assert all(size % 32 == 0 and size > 0 for size in found)
    assert LEAST_PIXELS <= found[0] * found[1] <= MOST_PIXELS


def test_values_that_hardly_move_are_not_the_robot_s():
    found = Statistics(np.zeros((1, 3)), np.array([[1.0, 1e-5, 2e-5]], np.float32)).active
    assert found.tolist() == [[1, 0, 1]] and found.dtype == np.float32
