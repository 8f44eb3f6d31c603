# SPDX-License-Identifier: Apache-2.0
"""
Why there is no plan. Each message names what is wrong, by how much, and the mend.

Knows nothing of how plans are found.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robion_ros.manager.traffic import TrafficPlan, TrafficProblem


class PlanError(ValueError):
    """There is no plan, or it is wrong; the running assignment stays."""


class Unserved(PlanError):
    """Not every robot can be served."""

    def __init__(self, message: str, best: 'TrafficPlan', fitting: 'TrafficProblem') -> None:
        super().__init__(message)
        self.best = best
        """The plan that serves the most robots."""
        self.fitting = fitting
        """The problem that best solves: without the robots that are left out."""


class NoServer(Unserved):
    """Models with robots are loaded on no server."""


class OverCapacity(Unserved):
    """The robots do not fit."""


class TimeLimit(Unserved):
    """In time, neither all robots were placed nor was it proven that they do not fit."""


class InfeasiblePlan(PlanError):
    """A plan breaks a constraint of its problem."""
