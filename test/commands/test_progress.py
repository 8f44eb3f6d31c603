# SPDX-License-Identifier: Apache-2.0
"""A bar on a terminal that leaves nothing behind, a line now and then elsewhere."""

from io import StringIO

import pytest

from robion_ros.commands import progress
from robion_ros.commands.progress import Bar, CLEAR_LINE, LINE_PERIOD


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_grows_in_place_and_goes() -> None:
    stream = Terminal()
    with Bar(stream) as bar:
        for part, left in ((0.25, 90.0), (1.0, 0.0)):
            bar.show(part, left)
    first, last, gone = stream.getvalue().split(CLEAR_LINE)[1:]
    assert first == f'[{"#" * 10}{"." * 30}]  25%, 90 s left'
    assert last == f'[{"#" * 40}] 100%, 0 s left' and gone == ''


@pytest.mark.parametrize('stream', [Terminal(), StringIO()], ids=['terminal', 'file'])
def test_nothing_is_shown_of_what_takes_no_time(stream: StringIO) -> None:
    with Bar(stream) as bar:
        pass
    assert stream.getvalue() == '' and not bar.shown


def test_file_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress, 'monotonic', lambda: now[0])
    stream = StringIO()
    with Bar(stream) as bar:
        for step in range(4):
            bar.show(step / 4, 40.0 - 10 * step)
            now[0] += LINE_PERIOD / 2
    assert stream.getvalue() == '  0%, 40 s left\n 50%, 20 s left\n'
