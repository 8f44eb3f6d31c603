# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""A residual and the layer norm that follows it, one block a row. Knows no model."""

from torch import Tensor
import triton
import triton.language as tl


@triton.jit
def add_norm_kernel(x, change, weight, bias, total, norm, WIDTH: tl.constexpr,
                    BLOCK: tl.constexpr, EPS: tl.constexpr):
    """Write total, x + change, and its layer norm, all [M, WIDTH]; BLOCK is at least WIDTH."""
    column = tl.arange(0, BLOCK)
    exists = column < WIDTH
    place = tl.program_id(0) * WIDTH + column
    value = (tl.load(x + place, exists, 0.0).to(tl.float32)
             + tl.load(change + place, exists, 0.0).to(tl.float32)).to(tl.bfloat16)
    tl.store(total + place, value, exists)
    value = value.to(tl.float32)
    apart = tl.where(exists, value - tl.sum(value, 0) / WIDTH, 0.0)
    result = apart * tl.rsqrt(tl.sum(apart * apart, 0) / WIDTH + EPS)
    result = (result * tl.load(weight + column, exists, 0.0).to(tl.float32)
              + tl.load(bias + column, exists, 0.0).to(tl.float32))
    tl.store(norm + place, result.to(tl.bfloat16), exists)


def add_norm(x: Tensor, change: Tensor, weight: Tensor, bias: Tensor,
             eps: float) -> tuple[Tensor, Tensor]:
    """Return x + change and its layer norm, bf16 [..., W] as both."""
    width = x.shape[-1]
    total, norm = x.new_empty(x.shape), x.new_empty(x.shape)
    add_norm_kernel[(x.numel() // width,)](
        x, change, weight, bias, total, norm, WIDTH=width, BLOCK=triton.next_power_of_2(width),
        EPS=eps, num_warps=2)
    return total, norm
