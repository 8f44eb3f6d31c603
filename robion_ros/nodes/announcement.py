# SPDX-License-Identifier: Apache-2.0
"""
How a node finds out whether another of its name runs: it listens, and then says that it is there.

Knows nothing else of the node.
"""

from collections.abc import Callable

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_msgs.msg import UInt64

from robion_ros.nodes import qos
from robion_ros.nodes.incarnation import Incarnation


class Announcement:
    """The incarnation of a node, on a topic of its own."""

    def __init__(self, node: Node, listen_time: float, give_way: Callable[[], None]) -> None:
        """Listen for listen_time s; give_way is called if another one goes on."""
        topic = f'~/{qos.INCARNATION}'
        self._incarnation = Incarnation()
        self._give_way = give_way
        self._publisher = node.create_publisher(UInt64, topic, qos.LATCHED_QOS)
        node.create_subscription(UInt64, topic, self._on_other, qos.LATCHED_QOS)
        self._listening = node.create_timer(listen_time, self._speak,
                                            clock=Clock(clock_type=ClockType.STEADY_TIME))

    def _speak(self) -> None:
        self._listening.cancel()
        self._incarnation.speaks = True
        self._publisher.publish(UInt64(data=self._incarnation.number))

    def _on_other(self, other: UInt64) -> None:
        if self._incarnation.gives_way(other.data):
            self._give_way()
