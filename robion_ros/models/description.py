# SPDX-License-Identifier: Apache-2.0
"""
What a checkpoint folder holds, for people and for proposing a factory file.

An architecture makes one of its own files; what is said of the weights is the same for all.
Knows no architecture.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
import math
from pathlib import Path

from torch import nn

from robion_ros.models.adapter import open_weights
from robion_ros.models.checkpoint import match
from robion_ros.models.folder import CheckpointError
from robion_ros.models.key_table import KeyTable


@dataclass(frozen=True)
class Description:
    """What a robot brings to a policy and gets from it, and what keeps it from being served."""

    architecture: str
    layout: str
    cameras: tuple[str, ...]
    """In the order of the policy's inputs; empty where only their number is known."""
    camera_count: int
    state_size: int
    action_size: int
    action_names: tuple[str, ...]
    """Empty where the checkpoint has none."""
    horizon: int
    """Steps of a chunk."""
    denoising_steps: int
    step_duration: float | None
    """Between two steps of a chunk, s; None where the checkpoint does not say it."""
    image_size: int | str
    """Of square pictures the side, pixels; else rows and columns, as text."""
    prompt_tokens: int
    """Most tokens of a prompt."""
    state_units: str
    action_units: str
    tokenizer: str | None
    """Path of the tokenizer's file; None: there is none; empty: none is needed."""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeightsSummary:
    """What the safetensors files of a folder hold."""

    tensors: int
    parameters: int
    nbytes: int
    dtypes: Mapping[str, int]
    """Parameters by type."""


def summarize_weights(folder: Path) -> WeightsSummary:
    """Count what a folder's weights are, without reading them."""
    with open_weights(folder) as shards:
        counts = {key: math.prod(shape) for key, shape in shards.shapes.items()}
        dtypes: Counter[str] = Counter()
        for key, count in counts.items():
            dtypes[shards.dtypes[key]] += count
        return WeightsSummary(len(counts), sum(counts.values()),
                              sum(map(shards.nbytes, shards.keys)), dict(dtypes))


def misfits(folder: Path, module: nn.Module, keys: KeyTable | None = None) -> tuple[str, ...]:
    """Return what is missing, unexpected or of another shape than a module on meta wants."""
    try:
        with open_weights(folder) as shards:
            match(shards, module, keys)
    except CheckpointError as error:
        return tuple(str(error).splitlines())
    return ()
