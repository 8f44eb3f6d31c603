# SPDX-License-Identifier: Apache-2.0
"""What is said of any folder's weights."""

import torch

from robion_ros.models import checkpoint
from robion_ros.models.description import misfits, summarize_weights


def test_weights_are_counted_by_type(tmp_path):
    checkpoint.save(tmp_path, {}, {'a': torch.zeros(2, 3), 'b': torch.zeros(5).bfloat16()})
    found = summarize_weights(tmp_path)
    assert (found.tensors, found.parameters, found.nbytes) == (2, 11, 34)
    assert found.dtypes == {'F32': 6, 'BF16': 5}


def test_misfits_are_lines(tmp_path):
    checkpoint.save(tmp_path, {}, {'weight': torch.zeros(2, 3)})
    with torch.device('meta'):
        fitting, other = (torch.nn.Linear(size, 2, bias=False) for size in (3, 4))
    assert misfits(tmp_path, fitting) == ()
    assert misfits(tmp_path, other)[1:] == ('weight has shape [2, 3], the model takes [2, 4]',)
