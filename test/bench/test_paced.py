# SPDX-License-Identifier: Apache-2.0
"""Stages that are held to a time: no sooner, and with the same results."""

from dataclasses import replace
from time import monotonic
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from robion_ros.bench.paced import pace
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.settings import BenchError
from robion_ros.engine.batch import stack
from robion_ros.engine.warm_up import example


def test_stages_take_their_time_and_change_nothing(prepared: Prepared) -> None:
    paced = pace(prepared, 0.03, 0.04)
    model, plain = paced.ready['a'], prepared.ready['a']
    assert model.spec == plain.spec
    for size, vlm, adit in ((1, 0.03, 0.04), (2, 0.05, 0.05)):
        tickets = (example('a', model),) * size
        noise = torch.stack([ticket.noise for ticket in tickets])
        start = monotonic()
        context = model.vlm(stack(tickets))
        middle = monotonic()
        actions = model.adit(context, noise)
        assert middle - start >= vlm and monotonic() - middle >= adit
        np.testing.assert_allclose(actions, plain.adit(plain.vlm(stack(tickets)), noise),
                                   atol=1e-6)


def test_a_gpu_is_not_held_up(prepared: Prepared) -> None:
    other = replace(prepared, device=SimpleNamespace(name='cuda:0'))  # type: ignore[arg-type]
    with pytest.raises(BenchError, match='stages on cuda:0 cannot be held up'):
        pace(other, 0.1, 0.1)
