# SPDX-License-Identifier: Apache-2.0
"""
A model on the CPU whose stages take a set time, however fast the machine is or whoever shares it.

For comparisons with what is expected of those times. Knows neither pipelines nor traffic.
"""

from collections.abc import Mapping
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, cast

import torch

from robion_ros.bench.prepared import Prepared
from robion_ros.bench.settings import BenchError
from robion_ros.models.protocol import Model, Tensors

VLM_MORE, ADIT_MORE = 2 / 3, 1 / 4
"""How much longer each further request of a batch makes a stage, as a part of the first: roughly
as on a GPU, where the VLM stage is bound by computing and the ADiT stage is not."""


class Paced:
    """A model that sleeps until the time of a stage is over."""

    def __init__(self, model: Model, vlm: float, adit: float) -> None:
        """Let the stages of a request alone take vlm and adit s, at the least."""
        self._model, self._vlm, self._adit = model, vlm, adit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def vlm(self, inputs: Tensors) -> Tensors:
        """Run the VLM stage in its time."""
        size = len(next(iter(inputs.values())))
        end = monotonic() + self._vlm * (1 + VLM_MORE * (size - 1))
        context = self._model.vlm(inputs)
        sleep(max(0.0, end - monotonic()))
        return context

    def adit(self, context: Tensors, noise: torch.Tensor) -> torch.Tensor:
        """Run the ADiT stage in its time."""
        end = monotonic() + self._adit * (1 + ADIT_MORE * (len(noise) - 1))
        actions = self._model.adit(context, noise)
        sleep(max(0.0, end - monotonic()))
        return actions


def pace(prepared: Prepared, vlm: float, adit: float) -> Prepared:
    """Hold the stages of all prepared models to a time, s; raise BenchError where none sleeps."""
    if prepared.device.name != 'cpu':
        raise BenchError(f'stages on {prepared.device.name} cannot be held up: only those on a '
                         'CPU are threads, which sleep')

    def held(models: Mapping[str, Model]) -> dict[str, Model]:
        return {name: cast(Model, Paced(model, vlm, adit)) for name, model in models.items()}
    return replace(prepared, models=held(prepared.models), ready=held(prepared.ready))
