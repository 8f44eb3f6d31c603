# SPDX-License-Identifier: Apache-2.0
"""
Frees the shared memory that killed processes have left behind.

Fast DDS gives every process a segment of its own, of as much as its profile says, and a file
beside it that the process keeps locked while it lives; the system drops that lock however the
process ends. Knows neither ROS nor whose segments they were.
"""

from contextlib import suppress
import fcntl
import os
from pathlib import Path
from time import time

FOLDER = Path('/dev/shm')
PREFIXES = 'fastdds_', 'fastrtps_'
"""Of Fast DDS 3 and 2."""
LOCK = '_el'
YOUTH = 10.0
"""A younger segment is left alone, s: its process may be about to lock it."""


def sweep(folder: Path = FOLDER) -> int:
    """
    Remove the segments whose processes have ended; return how many bytes that were.

    Ports, which processes share, are left: Fast DDS looks after them.
    """
    freed = 0
    for prefix in PREFIXES:
        for lock in folder.glob(f'{prefix}*{LOCK}'):
            segment = lock.with_name(lock.name.removesuffix(LOCK))
            if not segment.name.startswith(f'{prefix}port'):
                with suppress(OSError):  # Of another user, or another sweeper was quicker.
                    freed += _remove_if_orphaned(segment, lock)
    return freed


def _remove_if_orphaned(segment: Path, lock: Path) -> int:
    if time() - lock.stat().st_mtime < YOUTH:
        return 0
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = segment.stat().st_blocks * 512 if segment.exists() else 0
        segment.unlink(missing_ok=True)
        lock.unlink()
        return size
    finally:
        os.close(descriptor)
