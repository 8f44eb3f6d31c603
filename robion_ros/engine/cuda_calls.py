# SPDX-License-Identifier: Apache-2.0
"""Constructors of torch.cuda that torch leaves untyped. Knows nothing else."""

import torch


def new_stream(device: torch.device, priority: int = 0) -> torch.cuda.Stream:
    """Return a stream; kernels of a lower priority number are scheduled first."""
    return torch.cuda.Stream(device, priority)  # type: ignore[no-untyped-call]


def external_stream(handle: int, index: int) -> torch.cuda.Stream:
    """Return a stream of the driver as one of torch."""
    device = torch.device('cuda', index)
    return torch.cuda.ExternalStream(handle, device)  # type: ignore[no-untyped-call]


def new_event() -> torch.cuda.Event:
    """
    Return an event that takes times.

    A thread waits for it at full speed: to be woken can take longer than all else between two
    locksteps. Only an engine with work waits.
    """
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def has_passed(event: torch.cuda.Event) -> bool:
    """Return whether an event is past, without waiting."""
    return bool(event.query())  # type: ignore[no-untyped-call]
