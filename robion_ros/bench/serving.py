# SPDX-License-Identifier: Apache-2.0
"""
Where the traffic meets what serves it: everything before and after is the same for all.

Whatever can be given requests at their times and tell what became of them can be evaluated: an
engine in this process (drive.py), or servers and robots elsewhere. Knows none of them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from robion_ros.bench.network import Trip
from robion_ros.bench.records import Record


class Serving(Protocol):
    """Something that serves robots, from its first request to its end."""

    def run(self, trips: Sequence[Trip]) -> Sequence[Record]:
        """
        Serve the requests of one epoch in real time; return one record for each, in any order.

        Trip.arrival.at is counted from a start of its own choice, which comes once it is ready.
        A request whose Trip.up is None never reaches the server; the others reach it Trip.up
        after the observation, and their chunks the robot Trip.down after they are finished. Two
        epochs have no request in common, and nothing is left of one when the next begins. Raises
        BenchError where nothing can be served any more.
        """


Open = Callable[[], AbstractContextManager[Serving]]
"""Starts a way of serving; leaving it ends it."""
