# SPDX-License-Identifier: Apache-2.0
"""
What can be seen of a running factory from outside, as plain data.

nodes/observer.py gathers it; tables and summaries are made of it. Knows no ROS, and not whether
what was seen is good.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import ClassVar, NamedTuple


@dataclass(frozen=True)
class Report:
    """What one robot has measured so far; the fields are those of RobotReport.msg."""

    robot: str
    model: str = ''
    sent: int = 0
    answered: int = 0
    late: int = 0
    duplicated: int = 0
    wrong: int = 0
    unanswered: int = 0
    latency_ms: tuple[float, ...] = ()
    overhead_ms: tuple[float, ...] = ()
    finished: bool = False


@dataclass(frozen=True)
class Counts:
    """How requests ended at servers; the fields are those of RobotStatus.msg."""

    requests: int = 0
    answered: int = 0
    late: int = 0
    superseded: int = 0
    shed: int = 0
    failed: int = 0
    cancelled: int = 0

    def __add__(self, other: 'Counts') -> 'Counts':
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def dropped(self) -> int:
        """Requests that ended without a chunk, each for a reason that was counted."""
        return self.superseded + self.shed + self.failed + self.cancelled


class Counter(NamedTuple):
    """Where requests are counted: a server's process counts for itself, from its start on."""

    server: str
    incarnation: int
    robot: str


@dataclass(frozen=True)
class Server:
    """One server as it described itself last."""

    name: str
    incarnation: int
    state: str
    """unconfigured, configuring, inactive or active."""
    models: tuple[str, ...]
    epoch: int
    robots: tuple[str, ...]
    """Those it answers."""
    waiting: int
    lockstep_ms: float


@dataclass(frozen=True)
class Seat:
    """Where the manager has put a robot."""

    model: str
    server: str
    """Empty: the robot is not served."""


@dataclass(frozen=True)
class Snapshot:
    """Everything seen up to one moment."""

    reports: Mapping[str, Report]
    """By robot."""
    servers: Mapping[str, Server]
    """By name; only those that were heard."""
    seats: Mapping[str, Seat]
    """By robot, as of the newest assignment."""
    counts: Mapping[Counter, Counts]
    """The newest of every counter that was ever seen, also of processes that have died."""


@dataclass(frozen=True)
class Rebalanced:
    """The manager's answer to a rebalance."""

    success: bool
    message: str
    error_code: int = 0
    moved: int = 0
    objective: int = 0
    optimal: bool = False
    solve_ms: float = 0.0
    apply_ms: float = 0.0
    to_another_server: int = 0
    """Of those that moved; the others changed but their model."""

    NO_SERVER: ClassVar[int] = 202
    """error_code where the manager knows no server, or not yet for sure."""
