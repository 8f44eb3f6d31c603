# SPDX-License-Identifier: Apache-2.0
"""Simulated robots and the server that is made up for them, spun by the test itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from robion_ros.nodes.robots import RobotsNode

from ..waiting import until

Until = Callable[[Callable[[], object]], None]


@contextmanager
def spinning(robots: RobotsNode, server: Node) -> Iterator[Until]:
    """Yield what spins the robots and the server until something is so."""
    executor = SingleThreadedExecutor()
    executor.add_node(robots)
    executor.add_node(server)
    yield partial(until, step=0.05, pause=executor.spin_once)
    executor.shutdown()
    robots.close()
    robots.destroy_node()
