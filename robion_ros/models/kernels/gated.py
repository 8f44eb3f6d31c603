# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
The first product of a gated feed-forward part, for many rows, with the gate in it.

A library writes gate and up to memory and another kernel reads them again, which together takes
a seventh of the product's time. x and weights are tensor descriptors, for the copy engine; what
lies beyond x's last row reads as zero. All is bf16 and summed in fp32. Knows no model.
"""

import math

from torch import Tensor
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from robion_ros.models.kernels.matmul import gelu
from robion_ros.models.kernels.tiles import GATED


@triton.jit
def gated_kernel(x, weights, hidden, rows, WIDTH: tl.constexpr, HIDDEN: tl.constexpr,
                 SILU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                 BLOCK_K: tl.constexpr):
    """Write hidden [M, HIDDEN]: act(gate) * up, the products of x with halves of weights."""
    first_row, place = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, WIDTH, BLOCK_K):
        left = x.load([first_row, k])
        gate = tl.dot(left, weights.load([place, k]).T, gate)
        up = tl.dot(left, weights.load([HIDDEN + place, k]).T, up)
    result = (gate / (1 + tl.exp(-gate)) if SILU else gelu(gate)) * up
    row, column = first_row + tl.arange(0, BLOCK_M), place + tl.arange(0, BLOCK_N)
    tl.store(hidden + row[:, None] * HIDDEN + column[None, :], result.to(tl.bfloat16),
             (row < rows)[:, None])


def gated(x: Tensor, weights: Tensor, silu: bool) -> Tensor:
    """Turn x [M, W] into [M, N]; weights [2 N, W] are those of gate, then those of up."""
    rows, width = x.shape
    hidden = len(weights) // 2
    output = x.new_empty(rows, hidden)
    gated_kernel[(math.ceil(rows / GATED.rows), hidden // GATED.columns)](
        TensorDescriptor.from_tensor(x, [GATED.rows, GATED.depth]),
        TensorDescriptor.from_tensor(weights, [GATED.columns, GATED.depth]), output, rows,
        WIDTH=width, HIDDEN=hidden, SILU=silu, BLOCK_M=GATED.rows, BLOCK_N=GATED.columns,
        BLOCK_K=GATED.depth, num_warps=GATED.warps, num_stages=GATED.stages)
    return output
