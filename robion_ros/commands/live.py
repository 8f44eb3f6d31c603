# SPDX-License-Identifier: Apache-2.0
"""
What a running demo shows: a table that is drawn anew in place, or a line now and then.

Knows how a snapshot looks as text, not how it was taken.
"""

from collections import deque
import shutil
from time import monotonic
from types import TracebackType
from typing import Self, TextIO

from robion_ros.commands.table import format_table
from robion_ros.demo_summary import percentiles
from robion_ros.observed import Report, Snapshot

HOME, CLEAR, CLEAR_LINE, CLEAR_BELOW = '\x1b[H', '\x1b[2J', '\x1b[K', '\x1b[J'
HIDE_CURSOR, SHOW_CURSOR = '\x1b[?25l', '\x1b[?25h'
LINE_PERIOD = 5.0
"""Between two lines where there is no terminal, s."""
NOTES, NOTES_DRAWN = 30, 5
"""Newest notes that are kept on a terminal, and those that are shown."""
UNKNOWN = Report('')


class Screen:
    """Where a demo shows itself: in place on a terminal, line by line anywhere else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._drawn = False
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._next_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._drawn:
            self._write(SHOW_CURSOR)

    def show(self, title: str, snapshot: Snapshot) -> None:
        """Show a snapshot, if it is time to."""
        if self._terminal:
            self._draw([title, '', *format_robots(snapshot), '', *format_servers(snapshot), '',
                        *list(self._notes)[-NOTES_DRAWN:]])
        elif monotonic() >= self._next_line:
            self._next_line = monotonic() + LINE_PERIOD
            self.say(f'{title}: {format_line(snapshot)}')

    def note(self, text: str) -> None:
        """Show a line beside the snapshots; from any thread."""
        if self._terminal:
            self._notes.append(text)
        else:
            self.say(text)

    def keep_notes(self) -> None:
        """Print, for good, the notes that were shown for a moment."""
        while self._notes:
            self.say(self._notes.popleft())

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f'{text}\n')

    def _draw(self, lines: list[str]) -> None:
        size = shutil.get_terminal_size()
        shown = [line[:size.columns - 1] + CLEAR_LINE for line in lines[:size.lines - 1]]
        start = HOME if self._drawn else HIDE_CURSOR + CLEAR + HOME
        self._drawn = True
        self._write(start + '\n'.join(shown) + '\n' + CLEAR_BELOW)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def format_robots(snapshot: Snapshot) -> list[str]:
    """Return a table with a line for each robot."""
    rows = []
    for robot, seat in snapshot.seats.items():
        report = snapshot.reports.get(robot, UNKNOWN)
        latency = percentiles(report.latency_ms)
        rows.append((robot, seat.model, seat.server or '-', report.sent, report.answered,
                     report.late, show_ms(latency['p50']), show_ms(latency['p99'])))
    return format_table(('robot', 'model', 'server', 'requests', 'answered', 'late', 'p50 ms',
                         'p99 ms'), rows)


def format_servers(snapshot: Snapshot) -> list[str]:
    """Return a table with a line for each server."""
    return format_table(
        ('server', 'state', 'robots', 'lockstep ms', 'waiting'),
        [(name, server.state, len(server.robots), show_ms(server.lockstep_ms), server.waiting)
         for name, server in sorted(snapshot.servers.items())])


def format_line(snapshot: Snapshot) -> str:
    """Return the same in one line."""
    reports = snapshot.reports.values()
    latency = percentiles(value for report in reports for value in report.latency_ms)
    servers = ', '.join(f'{name} {server.state} with {len(server.robots)} robots'
                        for name, server in sorted(snapshot.servers.items()))
    return (f'{sum(report.sent for report in reports)} requests, '
            f'{sum(report.answered for report in reports)} answered, '
            f'{sum(report.late for report in reports)} late, '
            f'p50 {show_ms(latency["p50"])} ms, p99 {show_ms(latency["p99"])} ms; {servers}')


def show_ms(value: float | None) -> str:
    """Return a time for a table."""
    return '-' if value is None else f'{value:.1f}'
