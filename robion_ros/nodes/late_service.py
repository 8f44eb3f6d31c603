# SPDX-License-Identifier: Apache-2.0
"""
A service that answers when it can, so that a call may take minutes and holds nobody up.

rclpy's services answer when their callback returns; a coroutine as a callback would be lost with
the executor that spinner.py replaces under load. Knows no service in particular.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.node import Node

from robion_ros.nodes.qos import SERVICE_QOS

Answer = Callable[[Any], None]
"""Takes the response; from any thread, once."""


class LateService:
    """Gives each request to a callback together with the function that answers it."""

    def __init__(self, node: Node, kind: Any, name: str,
                 callback: Callable[[Any, Answer], None]) -> None:
        """Offer a service on a node whose executor runs one callback at a time."""
        self._callback = callback
        self._request: Any = None
        self._service = node.create_service(kind, name, self._on_request,
                                             qos_profile=SERVICE_QOS)
        self._send = self._service.send_response
        # The executor calls it at once after the callback, and it alone is told who asked.
        self._service.send_response = self._hand_over

    def _on_request(self, request: Any, response: Any) -> Any:
        self._request = request
        return response

    def _hand_over(self, response: Any, header: Any) -> None:
        self._callback(self._request, partial(self._answer, header))

    def _answer(self, header: Any, response: Any) -> None:
        self._send(response, header)
