# SPDX-License-Identifier: Apache-2.0
"""
A server's heartbeat, in a thread of its own: it goes on while the executor loads models.

It stops where the executor should run callbacks and does not, so that a server that hangs is
taken for what it is; where that does not pass it ends the process, since nobody else in it can.
And it stops for good where a beat cannot be sent: that is a fault, which the server must end by.
Knows neither robots nor who listens.
"""

from collections.abc import Callable
import faulthandler
from math import inf
import os
from threading import Event, Thread
from time import monotonic

from rclpy.node import Node
from std_msgs.msg import UInt64

from robion_ros.nodes import qos
from robion_ros.nodes.lease import Lease

HANG_TIME = 2.0
"""So long, s, the executor of a server that serves may run no callback."""


class Heart:
    """Publishes a lease's beats from its making until it is closed."""

    def __init__(self, node: Node, topic: str, lease: Lease, waits: Callable[[], bool],
                 hang_time: float = 0.0) -> None:
        """
        Beat for a node; waits says whether its executor may stand still.

        After hang_time s in which it may not and does, the process ends; 0: it does not.
        """
        self.fault = ''
        """Why it has stopped."""
        self._node = node
        self._publisher = node.create_publisher(UInt64, topic, qos.HEARTBEAT_QOS)
        self._lease = lease
        self._waits = waits
        self._patience = hang_time / lease.period if hang_time else inf
        """Beats left out in a row until the process ends; none is counted while it is stopped."""
        self._touched = monotonic()
        self._closed = Event()
        self._thread = Thread(target=self._run, name='heart', daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Say that the executor runs."""
        self._touched = monotonic()

    def close(self) -> None:
        """Beat no more."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        left_out = 0
        try:
            while not self._closed.wait(self._lease.period):
                if self._waits() or monotonic() - self._touched <= HANG_TIME:
                    self._publisher.publish(UInt64(data=self._lease.beat()))
                    left_out = 0
                elif (left_out := left_out + 1) > self._patience:
                    self._end()
        except BaseException as error:  # A thread would end by it, and nobody would know.
            if self._node.context.ok():  # Or the process ends anyway.
                # No further beat: the lease runs out, so nothing is answered after it.
                self.fault = f'the heart has stopped by a fault: {type(error).__name__}: {error}'
                self._node.get_logger().fatal(self.fault)

    def _end(self) -> None:
        """End this process by 1, with what each thread is at; a new one is started."""
        self._node.get_logger().fatal(
            f'the executor hangs: no callback has run in {monotonic() - self._touched:.0f} s; the '
            'process must be restarted')
        faulthandler.dump_traceback()
        os._exit(1)  # What hangs would hold up every other end.
