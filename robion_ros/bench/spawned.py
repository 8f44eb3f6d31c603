# SPDX-License-Identifier: Apache-2.0
"""
Work in a process of its own, for who may have opened a GPU, until nobody needs it any more.

Knows nothing of the work but that it says with ('failed', words) what it raised.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import multiprocessing
from multiprocessing.connection import Connection, wait
import os
import signal
from threading import Thread
from typing import Any


@contextmanager
def spawned(work: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Let a process do work(connection, *arguments); yield the other end; end it at last."""
    # As servers do: small tensors are slower in many threads.
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    # Not fork, which a process that has opened a GPU cannot survive.
    context = multiprocessing.get_context('spawn')
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(work, there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.terminate()
        process.join()


def _run(work: Callable[..., None], connection: Any, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Who waits for it ends it.
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(connection, *arguments)
    except BaseException as error:  # Whatever a model raises is said by who waits.
        connection.send(('failed', f'{type(error).__name__}: {error}'))


def _end_with_parent() -> None:
    """End this process when nobody waits for it any more, however that one ended."""
    parent = multiprocessing.parent_process()
    assert parent
    wait([parent.sentinel])
    os._exit(1)
