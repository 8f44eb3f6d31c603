# SPDX-License-Identifier: Apache-2.0
"""What a demo shows: in place on a terminal, a line now and then elsewhere."""

from dataclasses import replace
from io import StringIO
from os import terminal_size

import pytest

from robion_ros.commands import live
from robion_ros.commands.live import format_line, format_robots, format_servers, Screen
from robion_ros.observed import Report, Seat, Server, Snapshot

SNAPSHOT = Snapshot(
    reports={'robot_1': Report('robot_1', 'pick', 9, 8, 1, latency_ms=(20.0, 30.0))},
    servers={'server_0': Server('server_0', 1, 'active', ('pick',), 3, ('robot_1',), 2, 12.5)},
    seats={'robot_1': Seat('pick', 'server_0'), 'robot_2': Seat('place', '')}, counts={})


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_every_robot_has_a_line_also_one_that_is_not_served() -> None:
    lines = [line.split() for line in format_robots(SNAPSHOT)]
    assert lines[1:] == [
        ['robot_1', 'pick', 'server_0', '9', '8', '1', '25.0', '29.9'],
        ['robot_2', 'place', '-', '0', '0', '0', '-', '-']]


def test_every_server_has_a_line() -> None:
    assert format_servers(SNAPSHOT)[1].split() == ['server_0', 'active', '1', '12.5', '2']


def test_line_says_the_sums() -> None:
    assert format_line(SNAPSHOT) == ('9 requests, 8 answered, 1 late, p50 25.0 ms, p99 29.9 ms; '
                                     'server_0 active with 1 robot')


def test_robots_come_in_the_order_of_their_numbers() -> None:
    seats = {robot: Seat('pick', 'server_0') for robot in ('robot_10', 'robot_9', 'robot_1')}
    lines = format_robots(replace(SNAPSHOT, seats=seats))
    assert [line.split()[0] for line in lines] == ['robot', 'robot_1', 'robot_9', 'robot_10']


@pytest.mark.parametrize(('height', 'robots'), [
    (99, ['robot_1', 'robot_2', 'robot_3', 'robot_4']), (13, ['robot_1', 'robot_2', '...']),
    (10, ['...']), (5, [])], ids=['high', 'low', 'one line left', 'very low'])
def test_low_terminal_shows_servers_and_notes_and_says_how_many_robots_it_leaves_out(
        height: int, robots: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.shutil, 'get_terminal_size', lambda: terminal_size((80, height)))
    stream = Terminal()
    screen = Screen(stream)
    screen.note('rebalance: 3 of 8 robots moved')
    screen.note('rebalance: solved in 9 ms')
    screen.show('1 s of 20 s', replace(SNAPSHOT, seats={
        f'robot_{number}': Seat('pick', 'server_0') for number in range(1, 5)}))
    lines = stream.getvalue().replace(live.CLEAR_LINE, '').splitlines()
    assert len(lines) <= height
    assert lines[3].startswith('server_0 ')
    assert [line.split()[0] for line in lines if line.startswith(('robot_', '...'))] == robots
    if robots:
        assert lines[5:8] == ['rebalance: 3 of 8 robots moved', 'rebalance: solved in 9 ms', '']
    if '...' in robots:
        assert lines[-2] == f'... and {5 - len(robots)} more robots'


def test_note_that_nobody_reads_is_no_error() -> None:
    class Pipe(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError
    Screen(Pipe()).note('rebalance')


def test_terminal_is_drawn_in_place_and_gets_its_cursor_back() -> None:
    stream = Terminal()
    with pytest.raises(KeyError), Screen(stream) as screen:
        screen.show('1 s of 20 s', SNAPSHOT)
        screen.show('2 s of 20 s', SNAPSHOT)
        raise KeyError
    text = stream.getvalue()
    assert text.count(live.CLEAR) == 1 and text.count(live.HOME) == 2
    assert text.endswith(live.SHOW_CURSOR)


def test_terminal_that_was_not_drawn_on_stays_as_it_is() -> None:
    stream = Terminal()
    with Screen(stream) as screen:
        screen.say('waiting')
    assert stream.getvalue() == 'waiting\n'


def test_elsewhere_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live, 'monotonic', lambda: now[0])
    stream = StringIO()
    screen = Screen(stream)
    for now[0] in (100.5, 101.0, 105.4, 105.5, 110.6):
        screen.show(f'{now[0]}', SNAPSHOT)
    assert [line.split(':')[0] for line in stream.getvalue().splitlines()] == [
        '100.5', '105.5', '110.6']
