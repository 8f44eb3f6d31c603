# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
What stands between the products: residuals, norms, and the ends of a denoising step.

One block takes one row. The residual stream x [M, WIDTH], the actions [M, ACTIONS] and what
norms and ends multiply and add are fp32. A plain RMSNorm has a scale, its weight; an ADAPTIVE
one has 1 + scale, a shift, and a gate on the change that is added after it. Knows no model.
"""

import triton
import triton.language as tl

from robion_ros.models.kernels.overlap import wait_for_kernel_before


@triton.jit
def normal(x, parts, gate, scale, shift, PARTS: tl.constexpr, ADAPTIVE: tl.constexpr,
           WIDTH: tl.constexpr, EPS: tl.constexpr, OVERLAP: tl.constexpr):
    """Return this block's row of x plus, gated, the PARTS of a product, and its norm."""
    column = tl.arange(0, WIDTH)
    # What does not depend on the kernel before is read before its end.
    scale = tl.load(scale + column)
    if ADAPTIVE:
        shift = tl.load(shift + column)
        gate = tl.load(gate + column)
    wait_for_kernel_before(OVERLAP)
    place = tl.program_id(0) * WIDTH + column
    value = tl.load(x + place)
    if PARTS > 0:
        change = tl.load(parts + place)
        for part in tl.static_range(1, PARTS):
            change += tl.load(parts + part * tl.num_programs(0) * WIDTH + place)
        if ADAPTIVE:
            change *= gate
        value += change
    result = value * tl.rsqrt(tl.sum(value * value, 0) / WIDTH + EPS) * scale
    if ADAPTIVE:
        result += shift
    return value, result


@triton.jit
def norm_kernel(x, parts, gate, scale, shift, y, PARTS: tl.constexpr,
                ADAPTIVE: tl.constexpr, WIDTH: tl.constexpr, EPS: tl.constexpr,
                OVERLAP: tl.constexpr):
    """Add the parts to x, and write its norm to y in bf16."""
    value, result = normal(x, parts, gate, scale, shift, PARTS, ADAPTIVE, WIDTH, EPS,
                           OVERLAP)
    place = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    if PARTS > 0:
        tl.store(x + place, value)
    tl.store(y + place, result.to(tl.bfloat16))


@triton.jit
def enter_kernel(actions, weights, bias, mix_bias, x, hidden, ACTIONS: tl.constexpr,
                 MIX: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
                 OVERLAP: tl.constexpr):
    """
    Write x, the actions' tokens; with MIX, write silu of them to hidden, and mix_bias to x.

    The product with hidden is then added to x as a layer's change is.
    """
    row = tl.program_id(0)
    column, action = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ACTIONS)
    weight = tl.load(weights + column[:, None] * ACTIONS + action[None, :])
    start = tl.load(bias + column)
    wait_for_kernel_before(OVERLAP)
    value = tl.sum(weight * tl.load(actions + row * ACTIONS + action)[None, :], 1) + start
    place = row * WIDTH + column
    if MIX:
        tl.store(hidden + place, (value / (1 + tl.exp(-value))).to(tl.bfloat16))
        value = tl.load(mix_bias + column)
    tl.store(x + place, value)


@triton.jit
def leave_kernel(x, parts, gate, scale, shift, weights, bias, actions, duration,
                 PARTS: tl.constexpr, ADAPTIVE: tl.constexpr, ACTIONS: tl.constexpr,
                 WIDTH: tl.constexpr, EPS: tl.constexpr, OVERLAP: tl.constexpr):
    """Move the actions by what the last layer's x says, for a duration."""
    column, action = tl.arange(0, WIDTH), tl.arange(0, ACTIONS)
    weight = tl.load(weights + action[:, None] * WIDTH + column[None, :])
    _, result = normal(x, parts, gate, scale, shift, PARTS, ADAPTIVE, WIDTH, EPS, OVERLAP)
    velocity = tl.sum(weight * result[None, :], 1) + tl.load(bias + action)
    place = actions + tl.program_id(0) * ACTIONS + action
    tl.store(place, tl.load(place) - duration * velocity)
