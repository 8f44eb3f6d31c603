# SPDX-License-Identifier: Apache-2.0
"""
A thread that does one thing after another, so that a callback or a lockstep need not.

Knows nothing of what it does.
"""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

Job = Callable[[], None]


class Worker:
    """Runs jobs in the order they were put, each to its end."""

    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._on_error = on_error
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        """Queue a job; never blocks."""
        self._jobs.put(job)

    def close(self) -> None:
        """Do what is queued, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # One bad job must not end the jobs of others.
                self._on_error(error)
