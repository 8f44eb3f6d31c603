# SPDX-License-Identifier: Apache-2.0
"""Processes are kept running, heard, and ended without a trace, however that comes about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from robion_ros import supervisor
from robion_ros.processes import Process
from robion_ros.supervisor import Supervisor

from .waiting import until

QUIET_END = 'import signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit())\n'
SLEEP = 'print("up", flush=True)\nimport time\nwhile True: time.sleep(0.01)\n'
STEADY = QUIET_END + SLEEP
POLITE = STEADY.replace('sys.exit()', 'sys.exit(print("bye"))')
PARENT = """
import os, signal, sys, time
# Whoever runs the tests may have them ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from robion_ros.processes import Process
from robion_ros.supervisor import print_line, Supervisor

class Child(Process):
    def command(self, python=sys.executable):
        return [python, '-S', '-c', *self.arguments]

try:
    with Supervisor([Child(name, '', (sys.argv[1],), True) for name in 'ab'], os.environ) as both:
        while len(both.pids) < 2: time.sleep(0.01)
        print_line(' '.join(map(str, ['pids', *both.pids.values()])))
        if sys.argv[2:] != ['end at once']: both.wait()
    print('ended')
except KeyboardInterrupt:
    print('interrupted')
"""


@dataclass(frozen=True)
class Child(Process):
    """A process that runs a few lines of Python."""

    def command(self, python: str = sys.executable) -> list[str]:
        return [python, '-S', '-c', *self.arguments]


class Log:
    """The lines that were said, and those waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def wait_for(self, part: str, times: int = 1) -> None:
        until(lambda: ''.join(self.lines).count(part) >= times, lambda: self.lines)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; who adopted it may not have waited for it yet."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] == 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return True


def first_lines(process: subprocess.Popen[str], last: Callable[[list[str]], bool]) -> list[str]:
    """Return what a program prints until a condition holds."""
    assert process.stdout
    lines: list[str] = []
    while not last(lines):
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    return lines


def find_pids(lines: list[str]) -> list[int]:
    return [int(word) for line in lines if line.startswith('pids') for word in line.split()[1:]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Return a log; the supervisor's waits are short."""
    monkeypatch.setattr(supervisor, 'RESPAWN_DELAY', 0.05)
    monkeypatch.setattr(supervisor, 'REPEAT', 0.05)
    return Log()


@pytest.fixture
def parent(request: pytest.FixtureRequest) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a program which supervises two children."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        environ = os.environ | {'PYTHONPATH': os.pathsep.join(filter(None, sys.path)),
                                'PYTHONUNBUFFERED': '1'}
        started.append(subprocess.Popen([sys.executable, '-c', PARENT, *arguments], text=True,
                                        env=environ, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE))
        return started[-1]
    yield start
    for process in started:
        process.kill()
        process.communicate()


def supervise(log: Log, *children: Child) -> Supervisor:
    return Supervisor(children, os.environ, log.lines.append)


def test_output_is_passed_on_with_the_name(log: Log) -> None:
    code = ('import sys\nprint("one", flush=True)\nprint("two", file=sys.stderr, flush=True)\n'
            'sys.stdout.buffer.write(b"no \\xff text\\r\\n\\nlast")')
    with supervise(log, Child('server_0', '', (code,), False)) as one:
        assert one.wait(30)
    assert log.lines == ['[server_0] one', '[server_0] two', '[server_0] no \ufffd text',
                         '[server_0] ', '[server_0] last',
                         '[robion] server_0 ended with exit code 0']


def test_lines_are_printed_unless_told_otherwise(capfd: pytest.CaptureFixture[str]) -> None:
    with Supervisor([Child('a', '', ('print(5)',), False)], os.environ) as one:
        assert one.wait(30)
    assert capfd.readouterr().out == '[a] 5\n[robion] a ended with exit code 0\n'


def test_environment_is_given(log: Log) -> None:
    child = Child('a', '', ('import os; print(os.environ["HUE"])',), False)
    with Supervisor([child], {'HUE': 'red'}, log.lines.append) as one:
        assert one.wait(30)
    assert log.lines[0] == '[a] red'


def test_what_dies_is_started_again_and_counted(log: Log) -> None:
    with supervise(log, Child('a', '', (STEADY,), True),
                   Child('b', '', ('raise SystemExit(3)',), True)) as both:
        log.wait_for('[a] up')
        first = both.pids['a']
        os.kill(first, signal.SIGKILL)
        log.wait_for('[a] up', 2)
        assert both.pids['a'] != first
        log.wait_for('b ended with exit code 3; starts again in 0.05 s (restart 2)')
        assert not both.wait(0)
    assert '[robion] a was ended by signal 9 (Killed); starts again in 0.05 s (restart 1)' in (
        log.lines)
    assert both.restarts['a'] == 1 and both.restarts['b'] >= 2
    assert both.pids == {}


@pytest.mark.parametrize(('code', 'respawn', 'said'), [
    (3, False, 'exit code 3'), (2, True, 'code 2, see above; it is not started again')],
    ids=['not wanted', 'refuses to run'])
def test_what_shall_not_be_started_again_is_not(log: Log, code: int, respawn: bool,
                                                said: str) -> None:
    with supervise(log, Child('a', '', (f'raise SystemExit({code})',), respawn)) as one:
        assert one.wait(30)
        assert (one.pids, one.restarts, one.over) == ({}, {'a': 0}, ['a'])
    assert log.lines == [f'[robion] a ended with {said}']


@dataclass(frozen=True)
class Missing(Process):
    def command(self, python: str = sys.executable) -> list[str]:
        return ['/no/such/program']


def test_what_cannot_be_started_is_said(log: Log) -> None:
    with supervise(log, Missing('a', '', (), False)) as one:  # type: ignore[arg-type]
        assert one.wait(30)
    assert log.lines == ['[a] cannot be started: /no/such/program: No such file or directory',
                         '[robion] a ended with exit code 1']


def test_end_is_quiet_and_leaves_no_process(log: Log) -> None:
    with supervise(log, *(Child(name, '', (STEADY,), True) for name in 'abc')) as three:
        log.wait_for('up', 3)
        pids = three.pids.values()
    assert not any(Path(f'/proc/{pid}').exists() for pid in pids)
    assert sorted(log.lines) == ['[a] up', '[b] up', '[c] up']


def test_end_right_after_the_start_is_quiet(log: Log) -> None:
    slow = 'import time\ntime.sleep(0.2)\n' + QUIET_END + SLEEP
    with supervise(log, Child('a', '', (slow,), True), Child('b', '', (slow,), True)):
        pass
    assert set(log.lines) <= {'[a] up', '[b] up'}


@pytest.mark.parametrize(('code', 'steps'), [
    ('import signal\n' + SLEEP, ['SIGINT']),
    ('import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n' + SLEEP,
     ['SIGINT', 'SIGTERM']),
], ids=['ignores SIGINT', 'ignores SIGTERM, too'])
def test_what_does_not_end_is_made_to(log: Log, monkeypatch: pytest.MonkeyPatch, code: str,
                                      steps: list[str]) -> None:
    monkeypatch.setattr(supervisor, 'STOP_STEPS', (
        (signal.SIGINT, 0.1), (signal.SIGTERM, 0.2), (signal.SIGKILL, 30.0)))
    with supervise(log, Child('deaf', '', (code,), True)) as one:
        log.wait_for('up')
        pid = one.pids['deaf']
    assert is_gone(pid)
    assert [line.split()[-1] for line in log.lines[1:]] == steps
    assert log.lines[1] == '[robion] deaf: still there 0.1 s after SIGINT'


def test_what_a_process_leaves_behind_is_ended(log: Log) -> None:
    code = ('import subprocess, sys\n'
            'left = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(99)"])'
            '\nprint(left.pid)')
    with supervise(log, Child('a', '', (code,), False)) as one:
        assert one.wait(30)
    until(lambda: is_gone(int(log.lines[0].removeprefix('[a] '))))


def test_error_in_the_block_comes_out_after_the_end(log: Log) -> None:
    pids: dict[str, int] = {}
    with pytest.raises(KeyError), supervise(log, Child('a', '', (STEADY,), True)) as one:
        log.wait_for('up')
        pids = one.pids
        raise KeyError
    assert is_gone(pids['a'])


@pytest.mark.parametrize('error', [BrokenPipeError(), ValueError('not in this alphabet')],
                         ids=lambda error: type(error).__name__)
def test_what_cannot_be_shown_does_not_stop_a_process(tmp_path: Path, error: Exception) -> None:
    def say(line: str) -> None:
        raise error
    done = tmp_path / 'done'
    code = f'for _ in range(9999): print("x" * 99)\nopen({str(done)!r}, "w")'
    with Supervisor([Child('a', '', (code,), False)], os.environ, say) as one:
        assert one.wait(30)
    assert done.exists()


def test_handlers_are_put_back_and_those_of_others_left(log: Log) -> None:
    theirs = [signal.signal(signal.SIGINT, signal.default_int_handler),
              signal.signal(signal.SIGTERM, signal.SIG_IGN)]
    try:
        with supervise(log):
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), theirs, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize('signals', [
    [signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGINT] * 20, [signal.SIGTERM],
    [signal.SIGHUP], [signal.SIGTERM, signal.SIGINT],
], ids=lambda signals: '+'.join(number.name for number in signals[:2]) + '+' * len(signals[2:]))
def test_signals_end_everything_quietly(
        parent: Callable[..., subprocess.Popen[str]], signals: list[signal.Signals]) -> None:
    process = parent(POLITE)
    pids = find_pids(first_lines(process, lambda lines: bool(find_pids(lines))))
    for number in signals:
        process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, '')
    lines = out.splitlines()
    assert {'[a] bye', '[b] bye'} <= set(lines) <= {
        '[a] up', '[b] up', '[a] bye', '[b] bye', 'interrupted'}
    assert lines[-1] == 'interrupted'
    assert all(map(is_gone, pids))


def test_signal_while_all_is_ending_changes_nothing(
        parent: Callable[..., subprocess.Popen[str]]) -> None:
    slow = '[print("ending", flush=True), time.sleep(0.3), sys.exit(print("bye"))]'
    process = parent(STEADY.replace('sys.exit()', slow).replace('import', 'import time,', 1),
                     'end at once')
    first_lines(process, lambda lines: '[a] ending\n' in lines)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, '')
    assert '[a] bye\n' in out and out.endswith('ended\n')


@pytest.mark.skipif(sys.platform != 'linux', reason='PR_SET_PDEATHSIG is of Linux')
def test_processes_end_with_a_killed_parent(
        parent: Callable[..., subprocess.Popen[str]]) -> None:
    process = parent('import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n' + SLEEP)
    pids = find_pids(first_lines(process, lambda lines: len(lines) == 3))
    assert len(pids) == 2
    assert not any(map(is_gone, pids))
    process.kill()
    until(lambda: all(map(is_gone, pids)))
