# SPDX-License-Identifier: Apache-2.0
"""
The thread that plans: one thing after another, while the executor hears who is there.

Planning waits for the solver and for servers' answers. Statuses and those answers must come
meanwhile, also from many servers, so the executor is the one that costs least, with one thread.
Knows neither plans nor servers.
"""

from collections.abc import Callable
import sys
import traceback
from typing import Any

from rclpy.node import Node

from robion_ros.nodes.late_service import Answer, LateService
from robion_ros.nodes.spin import STOPPED
from robion_ros.nodes.worker import Job, Worker


class Planning:
    """Does what the callbacks of a node ask for; what raises ends the process."""

    def __init__(self, node: Node, look: Job) -> None:
        """Plan for a node that is a program; look plans where there is need."""
        self._node, self._look = node, look
        self._worker = Worker('planning', self._on_error)
        self._waits = self._closed = False

    def look(self) -> None:
        """Look whether there is need, unless that is about to be done."""
        if not self._waits:
            self._waits = True
            self._put(self._look_now)

    def serve(self, kind: Any, name: str, respond: Callable[[Any], Any]) -> None:
        """Offer a service that respond answers."""
        def on_request(request: Any, answer: Answer) -> None:
            self._put(lambda: answer(respond(request)))
        LateService(self._node, kind, name, on_request)

    def close(self) -> None:
        """End the thread after what is being done; what waits is not begun."""
        self._closed = True
        self._worker.close()

    def _look_now(self) -> None:
        self._waits = False
        self._look()

    def _put(self, job: Job) -> None:
        self._worker.put(lambda: None if self._closed or STOPPED.is_set() else job())

    def _on_error(self, error: BaseException) -> None:
        traceback.print_exception(error, file=sys.stderr)
        self._node.exit_code = 1  # Whoever keeps it running starts it again.
        STOPPED.set()
