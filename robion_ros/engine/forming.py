# SPDX-License-Identifier: Apache-2.0
"""
Which waiting requests go next, behind what is in flight: policy, batch and late rule together.

Knows the time only as it is told, and neither threads nor where batches run.
"""

from math import isfinite

from robion_ros.config import LateRule
from robion_ros.engine.batch import Batch, Ticket
from robion_ros.engine.in_flight import InFlight
from robion_ros.engine.lockstep_times import Finish, LockstepTimes, never_late
from robion_ros.engine.queues import Queues


def form(queues: Queues, times: LockstepTimes, late: LateRule, now: float,
         in_flight: InFlight | None) -> tuple[Batch | None, tuple[Ticket, ...]]:
    """Form a batch that starts when what is in flight has ended; shed what is late if so told."""
    finish = never_late if late == 'serve' else foresee(times, now, in_flight)
    shed = queues.remove_lost(finish) if late == 'shed' else ()
    return queues.take(now, finish), shed


def foresee(times: LockstepTimes, now: float, in_flight: InFlight | None) -> Finish:
    """Return when a batch would be finished that starts when what is in flight has ended."""
    if in_flight is None:
        return times.foresee(now, None)
    end = in_flight.started + times.least(in_flight.loads)
    beside = in_flight.entering.batch.load if in_flight.entering else None
    return times.foresee(max(now, end if isfinite(end) else now), beside)
