# SPDX-License-Identifier: Apache-2.0
"""
What became of a request, as its robot sees it: the one form in which every way of serving reports.

Knows neither how a request was served nor what a set of records adds up to.
"""

from dataclasses import dataclass
from enum import Enum

from robion_ros.bench.arrivals import Arrival
from robion_ros.bench.network import Trip
from robion_ros.core import ActionChunk, Outcome, Timings


class Ending(Enum):
    """How a request ended."""

    ANSWERED = 'answered'
    """Its chunk reached the robot, in time or late."""
    SUPERSEDED = 'superseded'
    SHED = 'shed'
    FAILED = 'failed'
    CANCELLED = 'cancelled'
    """The four above are core.DropReason's."""
    LOST_UP = 'lost_up'
    """The network lost it on its way to the server."""
    LOST_DOWN = 'lost_down'
    """The network lost its chunk."""
    UNANSWERED = 'unanswered'
    """Nothing was heard of it until long after the epoch."""


@dataclass(frozen=True)
class Record:
    """One request and its end."""

    arrival: Arrival
    ending: Ending
    latency: float | None = None
    """From the robot's observation to the chunk's arrival at the robot, s; None: never."""
    lag: float = 0.0
    """How much later than planned it was submitted, s: what the load generator adds itself."""
    timings: Timings | None = None
    """Where its time went at the server, if it ran."""
    batch: int = 0
    """Requests that shared its VLM stage; 0 if none."""

    @property
    def met(self) -> bool:
        """Whether the chunk reached the robot within the deadline."""
        return self.latency is not None and self.latency <= self.arrival.robot.slo


def settle(trip: Trip, outcome: Outcome | None, start: float, lag: float = 0.0) -> Record:
    """
    Return the record of a request by its outcome at the server, None for none.

    start is that of the epoch, on the clock of the outcome.
    """
    if trip.up is None:
        return Record(trip.arrival, Ending.LOST_UP)
    if outcome is None:
        return Record(trip.arrival, Ending.UNANSWERED, lag=lag)
    if not isinstance(outcome, ActionChunk):
        return Record(trip.arrival, Ending(outcome.reason.value), lag=lag)
    ending, latency = Ending.LOST_DOWN, None
    if trip.down is not None:
        ending = Ending.ANSWERED
        latency = outcome.finished + trip.down - (start + trip.arrival.at)
    return Record(trip.arrival, ending, latency, lag, outcome.timings, outcome.batch)
