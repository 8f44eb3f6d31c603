# SPDX-License-Identifier: Apache-2.0
"""
Launches the kernels of a denoising step, in order, on the current stream.

Every launch reads what the one before it wrote. Knows the shapes of an expert, not which
model it belongs to.
"""

from dataclasses import dataclass
import math
from typing import Any

from torch import Tensor
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from robion_ros.models.kernels import attention, hopper_attention, matmul, norm
from robion_ros.models.kernels.tiles import Tile, Tiles
from robion_ros.models.kernels.weights import Expert
from robion_ros.models.rotary import Rotary

ENTER_COLUMNS = 64
"""Of tokens, that a block of enter_kernel writes."""


@dataclass(frozen=True, eq=False)
class Workspace:
    """
    The buffers of one batch, M = B T rows; nothing in them survives from call to call.

    T counts the tokens of actions and, before them, one that is no action if there is one.
    """

    actions: Tensor
    """fp32 [B, T, A]: the result; the row of a token that is no action means nothing."""
    x: Tensor
    """fp32 [M, W], the residual stream."""
    y: Tensor
    """bf16 [M, W], its norm."""
    qkv: Tensor
    """bf16 [B, H + 2, T, D]: queries, keys, values."""
    found: Tensor
    """bf16 [splits, B, H * T, D], attention to each split of the keys."""
    weight: Tensor
    """fp32 [splits, B, H * T], the weights of those."""
    heads: Tensor
    """bf16 [M, H * D], attention."""
    hidden: Tensor
    """bf16 [M, hidden size]."""
    parts: Tensor
    """fp32 [parts, M, W], of a product."""


@dataclass(frozen=True, eq=False)
class Launcher:
    """One expert at work on one batch."""

    expert: Expert
    tiles: Tiles
    space: Workspace
    valid: Tensor
    """bool [B, K], which of the keys before exist."""
    turn: Rotary
    """Of the T tokens."""
    first: Tensor | None
    """fp32 [B, W], a token before the actions that sees none of them, if there is one."""
    overlap: bool
    """Whether a kernel may start while the one before it ends."""
    hopper: bool
    """Whether attention uses what Hopper has, and other GPUs have not."""

    def step(self, steps: Tensor, past: Tensor) -> None:
        """Move each request on from its own step, int32 [B]; past is [B, layers, 2, 1, K, D]."""
        self._enter(steps)
        for index in range(len(self.expert.layers)):
            self._layer(steps, index, past[:, index, :, 0])
        self._leave(steps)

    def _enter(self, steps: Tensor) -> None:
        """Turn actions into x and y."""
        e, s, ends = self.expert, self.space, self.expert.ends
        grid = self._rows, e.width // ENTER_COLUMNS
        unused = s.x
        self._launch(norm.enter_kernel, grid, 4)(
            s.actions, ends.enter, ends.enter_bias,
            unused if ends.mix_bias is None else ends.mix_bias,
            unused if self.first is None else self.first, steps, s.x, s.y,
            ACTIONS=ends.enter.shape[1], FIRST=self.first is not None, MIX=ends.mix is not None,
            TOKENS=self._tokens, WIDTH=e.width, BLOCK=ENTER_COLUMNS)
        if ends.mix is not None:
            self._project(s.y, ends.mix, self.tiles.mix)
        self._norm(steps, 0, 0 if ends.mix is None else self.tiles.mix.parts)

    def _layer(self, steps: Tensor, index: int, past: Tensor) -> None:
        """Run a layer on x and y; past is [B, 2, K, D]. The last leaves parts to add to x."""
        e, s, t = self.expert, self.space, self.tiles
        layer = e.layers[index]
        self._qkv(layer.self_attn.qkv.weight)
        self._attend(past)
        self._project(s.heads, layer.self_attn.o_proj.weight, t.output)
        self._norm(steps, 2 * index + 1, t.output.parts)
        self._gate_up(layer.mlp.gate_up.weight)
        self._project(s.hidden, layer.mlp.down_proj.weight, t.down)
        if index + 1 < len(e.layers):
            self._norm(steps, 2 * index + 2, t.down.parts)

    def _leave(self, steps: Tensor) -> None:
        """Move the actions one step on."""
        e, s, ends = self.expert, self.space, self.expert.ends
        self._launch(norm.leave_kernel, (self._rows,), 8)(
            s.x, s.parts, *self._norms(steps, 2 * len(e.layers)), ends.leave, ends.leave_bias,
            s.actions, 1 / e.steps, PARTS=self.tiles.down.parts, ADAPTIVE=e.norms.adaptive,
            ACTIONS=ends.enter.shape[1], FIRST=self.first is not None, TOKENS=self._tokens,
            WIDTH=e.width, EPS=e.eps)

    @property
    def _rows(self) -> int:
        return self.space.x.shape[0]

    @property
    def _tokens(self) -> int:
        return self.space.actions.shape[1]

    def _launch(self, kernel: Any, grid: tuple[int, ...], warps: int, stages: int = 1) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            options = {'launch_pdl': True} if self.overlap else {}
            kernel[grid](*arguments, **constants, OVERLAP=self.overlap, num_warps=warps,
                         num_stages=stages, **options)
        return launch

    def _product(self, kernel: Any, x: Tensor, weights: TensorDescriptor, columns: int,
                 tile: Tile) -> Any:
        """Return a launch of a product to columns that lacks the arguments behind these."""
        grid = math.ceil(self._rows / tile.rows), columns // tile.columns, tile.parts
        left = TensorDescriptor.from_tensor(x, [tile.rows, tile.depth])

        def launch(*arguments: Any, **constants: Any) -> None:
            self._launch(kernel, grid, tile.warps, tile.stages)(
                left, weights, *arguments, **constants, BLOCK_M=tile.rows,
                BLOCK_N=tile.columns, BLOCK_K=tile.depth)
        return launch

    def _project(self, x: Tensor, weight: Tensor, tile: Tile) -> None:
        right = TensorDescriptor.from_tensor(weight, [tile.columns, tile.depth])
        self._product(matmul.project_kernel, x, right, weight.shape[0], tile)(
            self.space.parts, self._rows, WIDTH=weight.shape[0], DEPTH=weight.shape[1],
            PARTS=tile.parts)

    def _qkv(self, weight: Tensor) -> None:
        e, s, (cos, sin) = self.expert, self.space, self.turn
        tile = self.tiles.qkv
        self._product(matmul.qkv_kernel, s.y, paired(weight, e.size // 2, tile),
                      weight.shape[0], tile)(
            cos, sin, s.qkv, self._rows, cos.stride(0), cos.stride(2), WIDTH=e.width,
            HEADS=e.heads, SIZE=e.size, TOKENS=self._tokens)

    def _gate_up(self, weight: Tensor) -> None:
        e, s, tile = self.expert, self.space, self.tiles.gate_up
        self._product(matmul.gate_up_kernel, s.y, paired(weight, e.hidden, tile),
                      weight.shape[0], tile)(
            s.hidden, self._rows, WIDTH=e.width, HIDDEN=e.hidden)

    def _attend(self, past: Tensor) -> None:
        e, s, span = self.expert, self.space, self.tiles.attention
        splits, batch, rows = s.weight.shape
        kernel, describe = ((hopper_attention.attend_kernel, hopper_attention.describe)
                            if self.hopper else
                            (attention.attend_kernel, TensorDescriptor.from_tensor))
        tile = [1, 1, span.keys, e.size]
        self._launch(kernel, (math.ceil(rows / span.rows), splits, batch), span.warps)(
            describe(s.qkv.view(-1, e.size), [span.rows, e.size]), describe(s.qkv, tile),
            describe(past, tile), self.valid, s.found, s.weight, self.valid.stride(0),
            past.shape[2], HEADS=e.heads, SIZE=e.size, TOKENS=self._tokens,
            FIRST=self.first is not None, TILES=span.tiles, BLOCK_M=span.rows, BLOCK_N=span.keys,
            SCALE=math.log2(math.e) / math.sqrt(e.size))
        self._launch(attention.join_kernel, (batch * rows,), self.tiles.join_warps)(
            s.found, s.weight, s.heads, HEADS=e.heads, SIZE=e.size, TOKENS=self._tokens,
            SPLITS=splits, BLOCK_S=triton.next_power_of_2(splits))

    def _norm(self, steps: Tensor, index: int, parts: int) -> None:
        e, s = self.expert, self.space
        self._launch(norm.norm_kernel, (self._rows,), self.tiles.norm_warps)(
            s.x, s.parts, *self._norms(steps, index), s.y, PARTS=parts,
            ADAPTIVE=e.norms.adaptive, TOKENS=self._tokens, WIDTH=e.width, EPS=e.eps)

    def _norms(self, steps: Tensor, index: int) -> tuple[Any, ...]:
        """Return the gate that follows the norm before, scale and shift of this, and steps."""
        norms = self.expert.norms
        scale = norms.scale[0, index]
        if norms.shift is None or norms.gate is None:
            return scale, scale, scale, steps, 0
        return (norms.gate[0, max(index - 1, 0)], scale, norms.shift[0, index], steps,
                norms.scale.stride(0))


def paired(weight: Tensor, apart: int, tile: Tile) -> TensorDescriptor:
    """Describe weights [N, K] as [N / apart, apart, K], in blocks of rows from two of those."""
    return TensorDescriptor.from_tensor(weight.view(-1, apart, weight.shape[1]),
                                        [2, tile.columns // 2, tile.depth])
