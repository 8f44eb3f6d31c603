# SPDX-License-Identifier: Apache-2.0
"""
What a running demo shows: a table that is drawn anew in place, or a line now and then.

Knows how a snapshot looks as text, not how it was taken.
"""

from collections import deque
from contextlib import suppress
import shutil
from time import monotonic
from types import TracebackType
from typing import Self, TextIO

from robion_ros.commands.table import format_table
from robion_ros.demo_summary import percentiles
from robion_ros.manager.assignment import natural
from robion_ros.observed import Report, Snapshot
from robion_ros.words import count

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
            notes = list(self._notes)[-NOTES_DRAWN:]
            self._draw([title, '', *format_servers(snapshot), '',
                        *([*notes, ''] if notes else [])], format_robots(snapshot))
        elif monotonic() >= self._next_line:
            self._next_line = monotonic() + LINE_PERIOD
            self.say(f'{title}: {format_line(snapshot)}')

    def note(self, text: str) -> None:
        """Show a line beside the snapshots; from any thread."""
        if self._terminal:
            self._notes.append(text)
            return
        with suppress(BrokenPipeError):  # It is for show, in the thread of the demo, to notice.
            self.say(text)

    def keep_notes(self) -> None:
        """Print, for good, the notes that were shown for a moment."""
        while self._notes:
            self.say(self._notes.popleft())

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f'{text}\n')

    def _draw(self, top: list[str], robots: list[str]) -> None:
        size = shutil.get_terminal_size()
        lines = (top + shorten(robots, size.lines - 1 - len(top)))[:size.lines - 1]
        shown = [line[:size.columns - 1] + CLEAR_LINE for line in lines]
        start = HOME if self._drawn else HIDE_CURSOR + CLEAR + HOME
        self._drawn = True
        self._write(start + '\n'.join(shown) + '\n' + CLEAR_BELOW)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def shorten(table: list[str], height: int) -> list[str]:
    """Return as much of a table of robots as has room, and how many more there are."""
    if len(table) <= height:
        return table
    shown = max(height - 2, 0)  # Besides the header and the line below.
    left = count(len(table) - 1 - shown, 'more robot')
    return [*table[:shown + 1], f'... and {left}'] if shown else [f'... and {left}']


def format_robots(snapshot: Snapshot) -> list[str]:
    """Return a table with a line for each robot."""
    rows = []
    for robot, seat in sorted(snapshot.seats.items(), key=by_name):
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
         for name, server in sorted(snapshot.servers.items(), key=by_name)])


def format_line(snapshot: Snapshot) -> str:
    """Return the same in one line."""
    reports = snapshot.reports.values()
    latency = percentiles(value for report in reports for value in report.latency_ms)
    servers = ', '.join(f'{name} {server.state} with {count(len(server.robots), "robot")}'
                        for name, server in sorted(snapshot.servers.items(), key=by_name))
    return (f'{count(sum(report.sent for report in reports), "request")}, '
            f'{sum(report.answered for report in reports)} answered, '
            f'{sum(report.late for report in reports)} late, '
            f'p50 {show_ms(latency["p50"])} ms, p99 {show_ms(latency["p99"])} ms; {servers}')


def by_name(item: tuple[str, object]) -> tuple[list[str | int], str]:
    """Return a key that sorts what has a name, robot_2 before robot_10."""
    return natural(item[0])


def show_ms(value: float | None) -> str:
    """Return a time for a table."""
    return '-' if value is None else f'{value:.1f}'
