# SPDX-License-Identifier: Apache-2.0
"""
The wish to end, as a flag: no exception that comes from anywhere, so nothing ends half done.

Knows nothing of what is to end.
"""

import signal
import time
from types import TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_PERIOD = 0.05
"""How often a wait looks at the flag, s. An Event would do without, but its lock may be held by
the very code that the signal interrupts."""


class Stop:
    """Is requested by Ctrl-C or a signal to end; further ones change nothing, also later on."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # nohup has it ignored for us to outlive the terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        # Python takes its handlers back long before the process has ended; a second Ctrl-C
        # would then replace the exit code. What is ignored stays so.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def wait(self, seconds: float) -> bool:
        """Wait; return at once, and whether, it was requested."""
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, POLL_PERIOD))
        return self.requested

    def _on_signal(self, number: int, frame: object) -> None:
        self.requested = True
