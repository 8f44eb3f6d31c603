# SPDX-License-Identifier: Apache-2.0
"""What an engine tells of itself. Loads no torch, so that a node can speak before an engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStats:
    """What an engine is doing."""

    waiting: int = 0
    locksteps: int = 0
    lockstep_time: float = 0.0
    """Median of the last locksteps, s; 0 for none yet."""
    epoch: int = 0
    """Of the assignment in force."""
