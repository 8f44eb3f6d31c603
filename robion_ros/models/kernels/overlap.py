# SPDX-License-Identifier: Apache-2.0
# mypy: allow-untyped-defs, allow-incomplete-defs
"""
How a kernel starts while the one before it still runs.

With programmatic dependent launch (Hopper and later) the blocks of a kernel may become resident
once every block of the one before has come past its own wait, and wait until what those wrote
is visible. Every block of every kernel must wait: then the end of a kernel implies the end of
all before it, and what was written two kernels ago may be read before the wait, or one ago by a
kernel of others, which lets nothing start before its own end. Knows no model.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait_for_kernel_before(OVERLAP: tl.constexpr):
    """Wait for the end of the kernel before, if this one was launched to overlap with it."""
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
