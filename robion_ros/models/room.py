# SPDX-License-Identifier: Apache-2.0
"""
How many multiprocessors (SMs) a stage will run on, for kernels that are cut accordingly.

Knows neither who divides a GPU nor how.
"""

from contextvars import ContextVar

ROOM: ContextVar[int | None] = ContextVar('room', default=None)
"""SMs that what is captured now will have; None: all of them."""
