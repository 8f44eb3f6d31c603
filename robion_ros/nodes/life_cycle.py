# SPDX-License-Identifier: Apache-2.0
"""
What rclpy leaves open in the transitions of a lifecycle node: those that raise, or cannot be.

rclpy turns an exception of a transition into an error, which leads back to unconfigured, without
a word. Knows no node in particular.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Protocol, TypeVar

from lifecycle_msgs.srv import ChangeState
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn


class Speaking(Protocol):
    """A node that can say what is wrong with it."""

    def complain(self, fault: str) -> None:
        """Log a fault, and show it until the node is configured again."""


SpeakingT = TypeVar('SpeakingT', bound=Speaking)
Transition = Callable[[SpeakingT, LifecycleState], TransitionCallbackReturn]


def said(what: str) -> Callable[[Transition[SpeakingT]], Transition[SpeakingT]]:
    """Let a transition say what it raises; what is what it is called."""
    def decorate(transition: Transition[SpeakingT]) -> Transition[SpeakingT]:
        @wraps(transition)
        def run(node: SpeakingT, state: LifecycleState) -> TransitionCallbackReturn:
            try:
                return transition(node, state)
            except Exception as error:
                node.complain(f'cannot {what}: {type(error).__name__}: {error}')
                return TransitionCallbackReturn.ERROR
        return run
    return decorate


def refuse_invalid(node: LifecycleNode, speaks: Callable[[], bool]) -> None:
    """
    Let a node refuse transitions that its state does not have; in Jazzy rclpy raises.

    Before it speaks, as another of its name may run, it refuses all that it is told.
    """
    def answer(change: Callable[..., Any], request: ChangeState.Request,
               response: ChangeState.Response) -> ChangeState.Response:
        refusal = 'listens whether another node of this name runs; ask again in some seconds'
        try:
            if speaks():
                return change(request, response)
        except RuntimeError as error:
            refusal = str(error)
        node.get_logger().error(refusal)
        response.success = False
        return response
    for service in node.services:
        if service.srv_type is ChangeState:
            service.callback = partial(answer, service.callback)
