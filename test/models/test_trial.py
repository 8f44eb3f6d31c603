# SPDX-License-Identifier: Apache-2.0
"""One request outside of any engine."""

import numpy as np
import torch

from robion_ros.models.trial import run_once


def test_every_part_takes_time_and_they_add_up(tiny):
    trial = run_once(tiny, 'cpu')
    parts = trial.preprocess, trial.vlm, trial.adit, trial.postprocess
    assert min(parts) > 0 and trial.finite
    np.testing.assert_allclose(trial.total, sum(parts))


def test_a_chunk_that_is_not_finite_is_said_to_be(tiny, monkeypatch):
    monkeypatch.setattr(tiny, 'adit', lambda context, noise: noise * torch.nan)
    assert not run_once(tiny, 'cpu').finite
