# SPDX-License-Identifier: Apache-2.0
"""Pictures of any size are squeezed into a square; test_golden.py compares the values."""

import numpy as np
import pytest
import torch

from robion_ros.models.gr00t_pictures import cropped, squeezed


@pytest.mark.parametrize('kind', [cropped, squeezed], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize('shape', [(1, 1), (1, 5000), (5000, 1), (2, 3), (56, 56)], ids=str)
def test_a_picture_of_any_size_fills_the_square(kind, shape):
    result = kind(np.full((*shape, 3), 200, np.uint8), 56)
    assert result.shape == (56, 56, 3) and result.dtype == torch.uint8
    assert (result.int() - 200).abs().max() <= 1
