# SPDX-License-Identifier: Apache-2.0
"""
A model whose stages take a set time, however fast the machine is or whoever shares it.

For what does not depend on what a model computes, and comparisons with what is expected of times.
Knows neither pipelines nor traffic.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import sleep
from typing import Any, cast

import torch

from robion_ros.bench.prepared import Prepared
from robion_ros.models import tiny
from robion_ros.models.protocol import Model, Tensors

GROWTH = 2 / 3, 1 / 4
"""How much longer each further request of a batch makes a stage, as a part of the first: roughly
as on a GPU, where the VLM stage is bound by computing and the ADiT stage is not."""


class Paced:
    """A model that sleeps instead of computing."""

    def __init__(self, model: Model, vlm: float, adit: float,
                 growth: tuple[float, float] = (0.0, 0.0)) -> None:
        """Let the stages of a request alone take vlm and adit s, of more requests by growth."""
        self._model, self._times, self._growth = model, (vlm, adit), growth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def vlm(self, inputs: Tensors) -> Tensors:
        """Let the time of the VLM stage pass."""
        self._pass(0, len(next(iter(inputs.values()))))
        return {}

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Let the time of the ADiT stage pass."""
        self._pass(1, len(noise))
        return noise

    def _pass(self, stage: int, batch: int) -> None:
        sleep(self._times[stage] * (1 + self._growth[stage] * (batch - 1)))


def pace(prepared: Prepared, vlm: float, adit: float) -> Prepared:
    """Let the stages of all models, prepared on a CPU, take a time, s."""
    def paced(models: Mapping[str, Model]) -> dict[str, Model]:
        return {name: cast(Model, Paced(model, vlm, adit, GROWTH))
                for name, model in models.items()}
    return replace(prepared, models=paced(prepared.models), ready=paced(prepared.ready))


def pace_tiny(vlm: float, adit: float) -> None:
    """Let the stages of tiny take a time, s, whatever the batch, wherever it is loaded next."""
    load = tiny.load
    tiny.load = lambda *arguments: Paced(load(*arguments), vlm, adit)  # type: ignore
