# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
What stands between the products: residuals, norms, and the ends of a denoising step.

One block takes one row. The residual stream x [M, WIDTH], the actions [M, ACTIONS] and what
norms and ends multiply and add are fp32. A plain RMSNorm has a scale, its weight; an ADAPTIVE
one has 1 + scale, a shift, and a gate on the change that is added after it, of the step that
the row's request is at, which steps tells for every TOKENS rows. Knows no model.
"""

import triton
import triton.language as tl

from robion_ros.models.kernels.overlap import wait_for_kernel_before


@triton.jit
def normal(x, parts, gate, scale, shift, steps, step_size, PARTS: tl.constexpr,
           ADAPTIVE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, EPS: tl.constexpr,
           OVERLAP: tl.constexpr):
    """Return this block's row of x plus, gated, the PARTS of a product, and its norm."""
    column = tl.arange(0, WIDTH)
    # What does not depend on the kernel before is read before its end.
    if ADAPTIVE:
        column_of_step = tl.load(steps + tl.program_id(0) // TOKENS) * step_size + column
        scale = tl.load(scale + column_of_step)
        shift = tl.load(shift + column_of_step)
        gate = tl.load(gate + column_of_step)
    else:
        scale = tl.load(scale + column)
    place = tl.program_id(0) * WIDTH + column
    if PARTS > 0:  # The kernel before has made the parts; x is older.
        value = tl.load(x + place)
    wait_for_kernel_before(OVERLAP)
    if PARTS == 0:
        value = tl.load(x + place)
    else:
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
def norm_kernel(x, parts, gate, scale, shift, steps, step_size, y, PARTS: tl.constexpr,
                ADAPTIVE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
                EPS: tl.constexpr, OVERLAP: tl.constexpr):
    """Add the parts to x, and write its norm to y in bf16."""
    value, result = normal(x, parts, gate, scale, shift, steps, step_size, PARTS, ADAPTIVE,
                           TOKENS, WIDTH, EPS, OVERLAP)
    place = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    if PARTS > 0:
        tl.store(x + place, value)
    tl.store(y + place, result.to(tl.bfloat16))


@triton.jit
def enter_kernel(actions, weights, bias, mix_bias, first, steps, x, hidden,
                 ACTIONS: tl.constexpr, FIRST: tl.constexpr, MIX: tl.constexpr,
                 TOKENS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
                 OVERLAP: tl.constexpr):
    """
    Write x, the actions' tokens; with MIX, write silu of them to hidden, and mix_bias to x.

    The product with hidden is then added to x as a layer's change is. With FIRST, the first of
    a request's TOKENS is no action but first [B, WIDTH], to which nothing is added.
    """
    row = tl.program_id(0)
    request = row // TOKENS
    column, action = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ACTIONS)
    weight = tl.load(weights + column[:, None] * ACTIONS + action[None, :])
    start = tl.load(bias + tl.load(steps + request) * WIDTH + column)
    wait_for_kernel_before(OVERLAP)
    value = tl.sum(weight * tl.load(actions + row * ACTIONS + action)[None, :], 1) + start
    place = row * WIDTH + column
    is_first = FIRST & (row % TOKENS == 0)
    if MIX:
        mixed = tl.where(is_first, 0.0, value / (1 + tl.exp(-value)))
        tl.store(hidden + place, mixed.to(tl.bfloat16))
        value = tl.load(mix_bias + column)
    if FIRST:
        value = tl.where(is_first, tl.load(first + request * WIDTH + column), value)
    tl.store(x + place, value)


@triton.jit
def leave_kernel(x, parts, gate, scale, shift, steps, step_size, weights, bias, actions,
                 duration, PARTS: tl.constexpr, ADAPTIVE: tl.constexpr, ACTIONS: tl.constexpr,
                 FIRST: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
                 EPS: tl.constexpr, OVERLAP: tl.constexpr):
    """Move the actions by what the last layer's x says, for a duration."""
    column, action = tl.arange(0, WIDTH), tl.arange(0, ACTIONS)
    weight = tl.load(weights + action[:, None] * WIDTH + column[None, :])
    _, result = normal(x, parts, gate, scale, shift, steps, step_size, PARTS, ADAPTIVE, TOKENS,
                       WIDTH, EPS, OVERLAP)
    velocity = tl.sum(weight * result[None, :], 1) + tl.load(bias + action)
    place = actions + tl.program_id(0) * ACTIONS + action
    is_action = tl.program_id(0) % TOKENS >= FIRST
    tl.store(place, tl.load(place) - duration * velocity, is_action)
