# SPDX-License-Identifier: Apache-2.0
"""
Keeps the processes of a factory running, passes on what they print, and ends them all.

Every process gets a session of its own, so that a terminal's Ctrl-C reaches only us and each is
asked to end once. Knows nothing of what the processes do.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
import os
import signal
import subprocess
import sys
from threading import current_thread, Event, Lock, main_thread, Thread
from time import monotonic
from types import FrameType, TracebackType
from typing import IO, Self

from robion_ros.processes import environment, Process

RESPAWN_DELAY = 1.0
"""From the end of a process to its next start, s."""
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
"""What a process is sent to end, and how long it may take, s."""
LAST_LINES = 1.0
"""Longest wait for them, s: what has left a process' session may still hold its output."""
REFUSAL = 2
"""Exit code of a process whose configuration is wrong, or whose name is taken already: starting
it again would change nothing."""
REPEAT = 1.0
"""A process may not heed a signal yet, so it is sent again after so long, s."""

LEASH = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
if sys.platform == 'linux':
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f'cannot be started: {sys.argv[2]}: {error.strerror}')
"""
"""
Run before the program of each process, which takes over its place and these two properties:
Linux kills it when we die, however we die, and SIGINT is ignored until the program handles it,
which spares a traceback from the middle of its imports. A program of its own because a
preexec_fn, Python code between fork and exec, may deadlock where there are threads.
"""


def print_line(line: str) -> None:
    """Print a line whole, also beside other threads."""
    sys.stdout.write(f'{line}\n')
    sys.stdout.flush()


class Supervisor:
    """
    Runs processes from the beginning to the end of a with block.

    Where nobody handles SIGINT, SIGTERM and SIGHUP, the first of them raises KeyboardInterrupt
    in the block and further ones change nothing. say gets each line to show, in any thread.
    """

    def __init__(self, processes: Iterable[Process], environ: Mapping[str, str] | None = None,
                 say: Callable[[str], None] = print_line) -> None:
        environ = os.environ | environment() if environ is None else environ
        self._say = partial(_pass_on, say)
        self._stopping = Event()
        self._keepers = [_Keeper(process, environ, self._say, self._stopping)
                         for process in processes]
        self._interrupted = False
        self._busy = False
        self._handlers: dict[signal.Signals, object] = {}

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run, by name."""
        return {keeper.name: pid for keeper in self._keepers if (pid := keeper.pid) is not None}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each process has been started again."""
        return {keeper.name: keeper.restarts for keeper in self._keepers}

    @property
    def over(self) -> list[str]:
        """The processes that have ended for good."""
        return [keeper.name for keeper in self._keepers if keeper.ended.is_set()]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all processes have ended for good; return whether they have."""
        deadline = None if timeout is None else monotonic() + timeout
        return all(keeper.ended.wait(None if deadline is None else max(deadline - monotonic(), 0))
                   for keeper in self._keepers)

    def __enter__(self) -> Self:
        self._busy = True
        try:
            self._handle_signals()
            for keeper in self._keepers:
                keeper.start()
        except BaseException:
            self._leave()
            raise
        self._busy = False
        if self._interrupted:
            self._leave()
            raise KeyboardInterrupt
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self._leave()
        except KeyboardInterrupt:  # At the last moment before we are busy: it comes but once.
            self._leave()
            raise

    def _leave(self) -> None:
        self._busy = True
        self._stop()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _stop(self) -> None:
        self._stopping.set()
        for number, patience in STOP_STEPS:
            deadline = monotonic() + patience
            while (alive := self._alive()) and (left := deadline - monotonic()) > 0:
                for keeper in alive:
                    keeper.send(number)
                self.wait(min(left, REPEAT))
            if alive:
                names = ', '.join(keeper.name for keeper in alive)
                self._say(f'[robion] {names}: still there {patience:g} s after {number.name}')

    def _alive(self) -> list['_Keeper']:
        return [keeper for keeper in self._keepers if not keeper.ended.is_set()]

    def _handle_signals(self) -> None:
        if current_thread() is main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(number)
                if handler in (signal.SIG_DFL, signal.default_int_handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self._interrupted = not self._interrupted, True
        if first and not self._busy:
            raise KeyboardInterrupt


class _Keeper:
    """Keeps one process running, in a thread that outlives it: Linux ties the leash to it."""

    def __init__(self, process: Process, environ: Mapping[str, str],
                 say: Callable[[str], None], stopping: Event) -> None:
        self.name = process.name
        self.restarts = 0
        self.pid: int | None = None
        # Not Thread.join and is_alive: a join that a signal interrupts takes the thread for ended.
        self.ended = Event()
        self.ended.set()
        self._process = process
        self._environ = environ
        self._say = say
        self._stopping = stopping
        self._lock = Lock()

    def start(self) -> None:
        """Start the process."""
        thread = Thread(target=self._keep, name=self.name, daemon=True)
        self.ended.clear()
        try:
            thread.start()
        except RuntimeError:  # No more threads.
            self.ended.set()
            raise

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs."""
        with self._lock:
            if self.pid is not None:
                os.kill(self.pid, number)

    def _keep(self) -> None:
        try:
            self._run_again_and_again()
        finally:
            self.ended.set()

    def _run_again_and_again(self) -> None:
        # A signal for us goes to the main thread, and one for a process waits for its leash.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        while (code := self._run()) is not None and not self._stopping.is_set():
            if code == REFUSAL:
                self._say(f'[robion] {self.name} ended with code {code}, see above; it is not '
                          'started again')
                return
            end = describe_end(code)
            if not self._process.respawn:
                self._say(f'[robion] {self.name} {end}')
                return
            self.restarts += 1
            self._say(f'[robion] {self.name} {end}; starts again in {RESPAWN_DELAY:g} s '
                      f'(restart {self.restarts})')
            self._stopping.wait(RESPAWN_DELAY)

    def _run(self) -> int | OSError | None:
        """Run the process once; return how it ended, None if it is not wanted any more."""
        command = [sys.executable, '-I', '-S', '-c', LEASH, str(os.getpid()),
                   *self._process.command()]
        with self._lock:
            if self._stopping.is_set():
                return None
            try:
                child = subprocess.Popen(
                    command, env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, encoding='utf-8', errors='replace',
                    start_new_session=True)
            except OSError as error:
                return error
            self.pid = child.pid
        reader = Thread(target=self._read, args=(child.stdout,), daemon=True)
        reader.start()
        # Until it is waited for, a dead process keeps its id, also as that of its group: whatever
        # it has left behind can be ended, and no signal can go astray.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            self.pid = None
            code = child.wait()
        reader.join(LAST_LINES)
        return code

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._say(f'[{self.name}] {line.rstrip()}')


def describe_end(code: int | OSError) -> str:
    """Return how a process ended, or why it was not started."""
    if isinstance(code, OSError):
        return f'cannot be started: {code}'
    if code < 0:
        return f'was ended by signal {-code} ({signal.strsignal(-code)})'
    return f'ended with exit code {code}'


def _pass_on(say: Callable[[str], None], line: str) -> None:
    # Where nobody reads any more what we print, or it cannot be printed, the factory runs on.
    with suppress(OSError, ValueError):
        say(line)
