# SPDX-License-Identifier: Apache-2.0
"""
One request to a model outside of any engine, and how long its parts take.

Knows no architecture; without graphs and company it is slower than what a server does.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from robion_ros.core import Observation
from robion_ros.models.protocol import Model

PICTURE = 480, 640, 3


@dataclass(frozen=True)
class Trial:
    """Where the time of one request went, s, and whether its chunk is one."""

    preprocess: float
    vlm: float
    adit: float
    postprocess: float
    finite: bool

    @property
    def total(self) -> float:
        """Time of the whole request, s."""
        return self.preprocess + self.vlm + self.adit + self.postprocess


def run_once(model: Model, device: str, prompt: str = 'pick up the part') -> Trial:
    """Answer one made-up observation on a device."""
    spec, rng = model.spec, np.random.default_rng(0)
    images = tuple(rng.integers(0, 256, PICTURE, dtype=np.uint8) for _ in range(spec.cameras))
    seen = Observation(images, np.zeros(spec.state_size, np.float32), prompt, 0)
    # Some kernels run on the device that is current, whatever they are given.
    with nullcontext() if device == 'cpu' else torch.cuda.device(device):
        begin = _now(device)
        inputs = {name: tensor[None].to(device)
                  for name, tensor in model.preprocess(seen).items()}
        ready = _now(device)
        context = model.vlm(inputs)
        read = _now(device)
        actions = model.adit(context, model.noise([0]).to(device))
        denoised = _now(device)
        chunk = model.postprocess(actions[0], seen)
        return Trial(ready - begin, read - ready, denoised - read, _now(device) - denoised,
                     bool(np.isfinite(chunk).all()))


def _now(device: str) -> float:
    if device != 'cpu':
        torch.cuda.synchronize(device)
    return perf_counter()
