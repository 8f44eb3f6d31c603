# SPDX-License-Identifier: Apache-2.0
"""
The ways of serving that are compared, as pipelines under the engine's own queues.

All run the same prepared models; docs/benchmarking.md says which system each imitates. Knows
neither traffic nor deadlines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from robion_ros.bench.prepared import prepare, Prepared
from robion_ros.bench.settings import BenchError, Mode
from robion_ros.bench.slots import make_slots
from robion_ros.bench.split import Split
from robion_ros.bench.stepwise import Stepwise
from robion_ros.engine.in_flight import Entered
from robion_ros.engine.packing import Block
from robion_ros.engine.pipelines import Guarded, Lockstep, Monolithic, Pipeline
from robion_ros.engine.profile import Load
from robion_ros.models.protocol import Model, Stepped, Tensors


@dataclass(frozen=True)
class ModeOptions:
    """What single modes can be told."""

    slots: int = 0
    """stepwise: most rows of a model that denoise side by side; 0: twice the largest batch."""
    buffer: int = 0
    """stepwise: most contexts between the stages; 0: twice the largest batch."""
    second_device: str = ''
    """split: where the ADiT stage runs."""


class Uncapped:
    """A model whose stages may take all of the GPU, whatever runs beside them."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def vlm_beside(self, blocks: Sequence[Block], beside: Load | None) -> Entered:
        """Run the VLM stage of packed requests without a cap."""
        return cast(Guarded, self._model).vlm_beside(blocks, None)

    def adit_beside(self, context: Tensors, noise: torch.Tensor,
                    beside: Load | None) -> torch.Tensor:
        """Run the ADiT stage wherever there is room."""
        return cast(Guarded, self._model).adit_beside(context, noise, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def uncapped(models: Mapping[str, Model]) -> Mapping[str, Model]:
    """Return models without caps; those that have none are as they are."""
    return {name: cast(Model, Uncapped(model)) if isinstance(model, Guarded) else model
            for name, model in models.items()}


def find_second(device: str, given: str) -> str:
    """Return the device of split's ADiT stage: that given, or another GPU, or '' for none."""
    if given or torch.device(device).type != 'cuda' or torch.cuda.device_count() < 2:
        return given
    return f'cuda:{((torch.device(device).index or 0) + 1) % torch.cuda.device_count()}'


def find_obstacle(mode: str, prepared: Prepared, options: ModeOptions) -> str:
    """Return why prepared models cannot be served in a mode, '' if they can."""
    if mode == 'split' and not options.second_device:
        return ('it needs a second GPU for the ADiT stage: name it with --second-device, for '
                'example cuda:1')
    whole = sorted({model.spec.architecture for model in prepared.models.values()
                    if not isinstance(model, Stepped)})
    if mode == 'stepwise' and whole:
        return (f'{", ".join(whole)} has no single denoising step '
                '(models.protocol.Stepped): leave the mode out')
    return ''


def make_pipeline(mode: Mode, prepared: Prepared, options: ModeOptions) -> Pipeline:
    """Put prepared models into the pipeline of a mode; raise BenchError where it cannot be."""
    if obstacle := find_obstacle(mode, prepared, options):
        raise BenchError(f'mode {mode!r} cannot be measured: {obstacle}')
    return MAKERS[mode](prepared, options)


def _stepwise(prepared: Prepared, options: ModeOptions) -> Pipeline:
    slots = {name: make_slots(name, model, prepared.ready[name], prepared.device,
                              options.slots or 2 * prepared.max_batch)
             for name, model in prepared.models.items() if isinstance(model, Stepped)}
    return Stepwise(prepared.ready, slots, prepared.device,
                    options.buffer or 2 * prepared.max_batch)


def _split(prepared: Prepared, options: ModeOptions) -> Pipeline:
    second = prepare(prepared.configs, options.second_device, prepared.max_batch, False)
    return Split(prepared.ready, prepared.device, second.ready, second.device)


MAKERS: Mapping[Mode, Callable[[Prepared, ModeOptions], Pipeline]] = {
    'lockstep': lambda prepared, options: Lockstep(prepared.ready, prepared.device),
    'monolithic': lambda prepared, options: Monolithic(prepared.ready, prepared.device),
    'two-stream': lambda prepared, options: Lockstep(uncapped(prepared.ready), prepared.device),
    'stepwise': _stepwise,
    'split': _split,
}
