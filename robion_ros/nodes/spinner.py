# SPDX-License-Identifier: Apache-2.0
"""
What runs a node's callbacks: rclpy's executors, each with its own way to spin and to stop.

Knows no node, and neither signals nor the end of a process.
"""

from collections.abc import Callable
from time import monotonic

from rclpy.clock import Clock, ClockType
from rclpy.executors import (
    Executor,
    ExternalShutdownException,
    SingleThreadedExecutor,
    TimeoutException,
)
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.task import Future

try:
    from rclpy.experimental.events_executor import EventsExecutor
except ImportError:  # Not every ROS has it.
    EventsExecutor = None

BEAT, MOST_LAG = 0.1, 0.25
"""How often an EventsSpinner looks whether it falls behind, and how much later that may be, s."""
DEPTH = 10
"""Most requests of a service that wait to be taken, rclpy's default."""


class Spinner:
    """Runs callbacks in the thread that calls spin, or in the executor's own, until stopped."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._stopping = False

    def add_node(self, node: Node) -> None:
        """Take over the callbacks of a node."""
        self._executor.add_node(node)

    def spin(self) -> None:
        """
        Run callbacks until stop is called or the context is shut down.

        Raises what a callback raised, and ExternalShutdownException.
        """
        try:
            self._spin()
        except rclpy_implementation.RCLError:
            # A context that is shut down just before the executor waits makes that fail.
            if self._executor.context.ok():
                raise
            raise ExternalShutdownException from None

    def stop(self) -> None:
        """Let spin return; from any thread."""
        # Not shutdown(), which takes the guards away under the feet of a running callback.
        self._stopping = True
        self._executor.create_task(lambda: None)

    def shutdown(self) -> None:
        """Let go of the nodes; after spin has returned."""
        self._executor.shutdown()

    def _spin(self) -> None:
        while self._runs():
            self._executor.spin_once()

    def _runs(self) -> bool:
        return not self._stopping and self._executor.context.ok()


class EventsSpinner(Spinner):
    """
    Spins an EventsExecutor, which costs the same for each message however many subscriptions.

    Others collect all of them anew for each message. Its faults in Kilted that its users must
    know: a callback that wants the message's info gets both as one tuple, one more message may
    come after its subscription was destroyed, and an event handler (of quality of service) that
    is destroyed while spinning may take the process down.
    """

    def __init__(self, hurries: Callable[[], bool] = lambda: True) -> None:
        """Take what says whether it matters that callbacks are behind, and has to be said."""
        super().__init__(EventsExecutor())
        self._hurries = hurries
        self._nodes: list[Node] = []
        self._turn: Future[None] = Future()
        self._beaten = monotonic()

    def add_node(self, node: Node) -> None:
        """Take over the callbacks of a node."""
        super().add_node(node)
        if not self._nodes:
            node.create_timer(BEAT, self._on_beat, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._nodes.append(node)

    def stop(self) -> None:
        """Let spin return; from any thread."""
        self._stopping = True
        self._turn.set_result(None)

    def _spin(self) -> None:
        while self._runs():
            # Not spin_once, which leaves and enters Python for each message; and with a time,
            # since without one Kilted's returns at once.
            self._executor.spin_until_future_complete(self._turn, 3600.0)
            if self._turn.done() and self._runs():
                self._catch_up()

    def _on_beat(self) -> None:
        """
        Notice where messages come faster than callbacks take them, or one callback took long.

        The executor queues the news of each message, also of those that newer ones have
        replaced since, so it falls behind ever more, and its timers with it.
        """
        now = monotonic()
        lag, self._beaten = now - self._beaten - BEAT, now
        if lag > MOST_LAG and not self._turn.done():
            if self._hurries():
                self._nodes[0].get_logger().info(
                    f'callbacks were {lag:.1f} s behind; messages that newer ones have replaced '
                    'are skipped', throttle_duration_sec=5.0)
            self._turn.set_result(None)

    def _catch_up(self) -> None:
        """
        Forget the queue, take what is there, and go on with a new executor.

        What the old one has heard of and not taken, a new one would never hear of.
        """
        context = self._executor.context
        self._executor.shutdown()
        taker = SingleThreadedExecutor(context=context)
        self._add_nodes(taker)
        try:
            for _ in range(self._most_waiting()):
                if self._runs():
                    run_ready(taker)
        except TimeoutException:
            pass  # Nothing is left.
        taker.shutdown()
        self._turn, self._beaten = Future(), monotonic()
        self._executor = EventsExecutor(context=context)
        self._add_nodes(self._executor)

    def _most_waiting(self) -> int:
        """Return how many callbacks may have to be run until all that is there was taken."""
        depths = [subscription.qos_profile.depth
                  for node in self._nodes for subscription in node.subscriptions]
        others = sum(len(list(entities)) for node in self._nodes
                     for entities in (node.services, node.clients, node.waitables, node.timers))
        return max([DEPTH, *depths]) * (len(depths) + others)

    def _add_nodes(self, executor: Executor) -> None:
        for node in self._nodes:
            executor.add_node(node)


def run_ready(executor: Executor) -> None:
    """Run a callback that is ready; raise TimeoutException if none is, and what it raises."""
    try:
        task, _, _ = executor.wait_for_ready_callbacks(timeout_sec=0)
    except TimeoutException:  # Also where a round of those that were ready has ended.
        task, _, _ = executor.wait_for_ready_callbacks(timeout_sec=0)
    task()
    if error := task.exception():
        raise error


def one_thread(hurries: Callable[[], bool] = lambda: True) -> Spinner:
    """
    Return what runs callbacks one after another at the least cost that this ROS offers.

    hurries is that of EventsSpinner.
    """
    return EventsSpinner(hurries) if EventsExecutor else Spinner(SingleThreadedExecutor())
