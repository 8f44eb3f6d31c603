# SPDX-License-Identifier: Apache-2.0
"""
How far something is that takes long: a bar on a terminal, a line now and then elsewhere.

Knows nothing of what takes so long.
"""

from time import monotonic
from types import TracebackType
from typing import Self, TextIO

WIDTH = 40
CLEAR_LINE = '\r\x1b[K'
LINE_PERIOD = 5.0
"""Between two lines where there is no terminal, s."""


class Bar:
    """A bar that is gone when its block ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._next_line = 0.0
        self.shown = False
        """Whether there was any progress to show."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self.shown and self._terminal:
            self._write(CLEAR_LINE)

    def show(self, part: float, left: float) -> None:
        """Show that a part, 0 to 1, is done, and that the rest will take so long, s."""
        text = f'{part:4.0%}, {left:.0f} s left'
        self.shown = True
        if self._terminal:
            full = round(part * WIDTH)
            self._write(f'{CLEAR_LINE}[{"#" * full}{"." * (WIDTH - full)}] {text}')
        elif monotonic() >= self._next_line:
            self._next_line = monotonic() + LINE_PERIOD
            self._write(f'{text}\n')

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
