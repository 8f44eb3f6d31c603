# SPDX-License-Identifier: Apache-2.0
"""
The life of a node's process, the same for every node: start, spin, end without a trace.

Knows no node in particular.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
import faulthandler
import os
import signal
import sys
from threading import Thread
import traceback
from typing import TypeVar

import rclpy
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import ExternalShutdownException
from rclpy.signals import SignalHandlerOptions

from robion_ros.nodes.parameters import describe, Parameter
from robion_ros.nodes.program import Program
from robion_ros.nodes.spinner import Spinner
from robion_ros.shared_memory import sweep

END_TIME = 10.0
"""So long, s, may what a fault has left behind keep a process from its end."""

ProgramT = TypeVar('ProgramT', bound=Program)


class Flag:
    """
    An event that a signal may set, whichever thread it finds.

    Not threading.Event, whose lock could hold up its own thread in a handler; and a signal that
    another thread takes, as one that is just being made may, does not wake the main thread from
    a lock, but a byte in a pipe does.
    """

    def __init__(self) -> None:
        self._set = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def hear(self, *numbers: signal.Signals) -> None:
        """Be set by these signals from now on; call it in the main thread."""
        for number in numbers:
            signal.signal(number, lambda *_: self.set())
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def set(self) -> None:
        """Raise the flag, for good."""
        self._set = True
        with suppress(BlockingIOError):
            os.write(self._write, b'.')

    def is_set(self) -> bool:
        """Return whether the flag was raised."""
        return self._set

    def wait(self) -> None:
        """Wait for the flag, in the main thread alone."""
        while not self._set:
            os.read(self._read, 4096)


STOPPED = Flag()
"""Set when the process shall end; a long callback may look at it."""


def run(make: Callable[[], ProgramT], make_spinner: Callable[[ProgramT], Spinner], doc: str,
        table: Sequence[Parameter], args: Sequence[str] | None = None,
        finish: Callable[[ProgramT], None] = lambda node: None) -> int:
    """
    Run a node until SIGINT, SIGTERM or a shutdown; return the process' exit code.

    make builds the node and may raise ValueError for a configuration that is wrong; for that, and
    for arguments that ROS does not take, the exit code is 2. finish ends what must not be broken
    off, while callbacks still run.
    """
    words = list(sys.argv if args is None else args)
    if {'-h', '--help'} & set(words):
        print(f'{doc.strip()}\n\nparameters (--ros-args -p name:=value):\n{describe(table)}')
        return 0
    # Not rclpy's handlers: they shut the context down at once, under the feet of callbacks and
    # of the node's own ending, which then can neither log nor publish.
    STOPPED.hear(signal.SIGINT, signal.SIGTERM)
    sweep()  # Perhaps of the process that this one takes the place of.
    try:
        rclpy.init(args=words, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        return _refuse(words[0], error)
    try:
        node = make()
    except (ValueError, ParameterException, NameValidationException) as error:
        return _refuse(words[0], error)
    spinner = make_spinner(node)
    spinner.add_node(node)
    faults: list[BaseException] = []
    thread = Thread(target=_spin, args=(spinner, faults), name='executor')
    thread.start()
    STOPPED.wait()  # In the main thread, where signals are handled without delay.
    if faults:  # A device that hangs may hold up whoever asks it anything.
        faulthandler.dump_traceback_later(END_TIME, exit=True, file=2)
    finish(node)
    spinner.stop()
    thread.join()
    spinner.shutdown()
    node.close()
    node.destroy_node()
    rclpy.try_shutdown()
    faulthandler.cancel_dump_traceback_later()
    return 1 if faults else node.exit_code


def _refuse(program: str, error: Exception) -> int:
    """Say why a node cannot start; return the exit code."""
    print(f'{program}: {error}', file=sys.stderr)
    rclpy.try_shutdown()
    return 2


def _spin(spinner: Spinner, faults: list[BaseException]) -> None:
    """Spin until the process shall end, the context is shut down, or a callback fails."""
    try:
        spinner.spin()
    except ExternalShutdownException:
        pass
    except BaseException as error:  # Also SystemExit, which a thread ends by without a word.
        traceback.print_exc()
        faults.append(error)
    finally:
        STOPPED.set()
