# SPDX-License-Identifier: Apache-2.0
"""
What an action expert is made of, as its kernels read it.

The layers' own weights are read where they are, so nothing is held twice. Needs no GPU. Axis
letters: N denoising steps, W width, A size of an action.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Norms:
    """All norms of an expert, two of each of L layers and the last one: fp32 [., 2 L + 1, W]."""

    scale: Tensor
    """[1, 2 L + 1, W], the weights of plain norms; [N, 2 L + 1, W], 1 + scale of adaptive ones."""
    shift: Tensor | None = None
    """[N, 2 L + 1, W], of adaptive norms."""
    gate: Tensor | None = None
    """[N, 2 L + 1, W], of adaptive norms, on the change that follows each; the last is unused."""

    @property
    def adaptive(self) -> bool:
        """Whether the norms depend on the step, as pi0.5's do."""
        return self.shift is not None


@dataclass(frozen=True, eq=False)
class Ends:
    """How actions become tokens, and tokens velocities."""

    enter: Tensor
    """fp32 [W, A]."""
    enter_bias: Tensor
    """fp32 [N, W]."""
    leave: Tensor
    """fp32 [A, W]."""
    leave_bias: Tensor
    """fp32 [A]."""
    mix: Tensor | None = None
    """bf16 [W, W]: if given, tokens are mix silu(enter actions + enter_bias) + mix_bias."""
    mix_bias: Tensor | None = None
    """fp32 [W]."""


@dataclass(frozen=True, eq=False)
class Expert:
    """
    An action expert of decoder layers on one head of keys and values, weights in bf16.

    Raises ValueError where its kernels cannot take it.
    """

    layers: Sequence[Any]
    """With self_attn and mlp of layers.py; norms of their own are not looked at."""
    norms: Norms
    ends: Ends
    steps: int
    """Of denoising, each of a duration of 1 / steps."""
    eps: float = 1e-6

    def __post_init__(self) -> None:
        attention = self.layers[0].self_attn
        if attention.kv_heads != 1:
            raise ValueError(f'the expert has {attention.kv_heads} heads of keys and values, its '
                             'kernels take 1: run its layers without them')
        for name, size in (('width', self.width), ('head size', self.size),
                           ('size of an action', self.ends.enter.shape[1])):
            if size & (size - 1):
                raise ValueError(f"the expert's {name} is {size}, its kernels take powers of two: "
                                 'run its layers without them')
        if not 16 <= self.size <= 256:
            raise ValueError(f"the expert's head size is {self.size}, its kernels take 16 to 256: "
                             'run its layers without them')
        for layer in self.layers:
            for name, weight in (*layer.self_attn.named_parameters(),
                                 *layer.mlp.named_parameters()):
                if weight.ndim == 2 and weight.dtype != torch.bfloat16:
                    raise ValueError(f"the expert's {name} is {weight.dtype}, its kernels take "
                                     'bfloat16: convert the layers before')
        if self.norms.adaptive and self.ends.mix is not None:
            raise ValueError('the expert has adaptive norms and a mix of actions and times, its '
                             'kernels take one of the two')

    @property
    def width(self) -> int:
        """The width of tokens."""
        return self.ends.enter.shape[0]

    @property
    def hidden(self) -> int:
        """The width inside the feed-forward part."""
        return self.layers[0].mlp.down_proj.in_features

    @property
    def heads(self) -> int:
        """How many heads query."""
        return self.layers[0].self_attn.heads

    @property
    def size(self) -> int:
        """The size of a head."""
        return self.layers[0].self_attn.head_size
