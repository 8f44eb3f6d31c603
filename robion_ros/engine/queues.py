# SPDX-License-Identifier: Apache-2.0
"""
One FIFO of tickets for each model, at most one ticket for each robot in it.

Knows neither threads (the engine holds the lock) nor stages.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from robion_ros.engine.batch import Batch, Ticket
from robion_ros.engine.policies import Policy, Waiting


class Place(NamedTuple):
    """A robot's place in a line."""

    ticket: Ticket
    deadline: float
    """That of the first ticket in this place, s of time.monotonic(): what makes it urgent."""


class Queues:
    """The requests that wait, by model."""

    def __init__(self, models: Iterable[str], policy: Policy, max_batch: int) -> None:
        self._queues: dict[str, dict[str, Place]] = {model: {} for model in models}
        self._served = dict.fromkeys(self._queues, -1)
        self._policy = policy
        self._max_batch = max_batch
        self._taken = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, ticket: Ticket) -> Ticket | None:
        """
        Queue a ticket and return the robot's older one that it replaces, if any.

        The newer one takes the older one's place in the line, with its urgency: under overload
        every robot is served in turn, with its newest observation, and neither a robot nor a
        model with a long deadline starves.
        """
        queue = self._queues[ticket.request.model]
        old = queue.get(ticket.request.robot)
        queue[ticket.request.robot] = Place(ticket, old.deadline if old
                                            else ticket.request.deadline)
        return old.ticket if old else None

    def remove(self, robot: str) -> tuple[Ticket, ...]:
        """Take a robot's waiting tickets out."""
        found = (queue.pop(robot, None) for queue in self._queues.values())
        return tuple(place.ticket for place in found if place is not None)

    def clear(self) -> tuple[Ticket, ...]:
        """Take every waiting ticket out."""
        found = tuple(place.ticket for queue in self._queues.values() for place in queue.values())
        for queue in self._queues.values():
            queue.clear()
        return found

    def remove_late(self, earliest_finish: Mapping[str, float]) -> tuple[Ticket, ...]:
        """Take out the tickets whose deadline is before their model's earliest finish."""
        late = [place.ticket for model, queue in self._queues.items() for place in queue.values()
                if place.ticket.request.deadline < earliest_finish[model]]
        for ticket in late:
            del self._queues[ticket.request.model][ticket.request.robot]
        return tuple(late)

    def take(self, now: float) -> Batch | None:
        """
        Form the next batch: the policy picks the model, the head of its queue goes.

        The size is the largest power of two that is waiting, up to max_batch: the VLM stage is
        compute-bound, so rows that pad a batch would cost as much as requests.
        """
        waiting = [
            Waiting(model, len(queue), next(iter(queue.values())).deadline, self._served[model])
            for model, queue in self._queues.items() if queue]
        if not waiting:
            return None
        chosen = self._policy(waiting)
        queue = self._queues[chosen.model]
        size = min(self._max_batch, 1 << (len(queue).bit_length() - 1))
        robots = list(queue)[:size]
        self._served[chosen.model] = self._taken
        self._taken += 1
        return Batch(chosen.model, tuple(queue.pop(robot).ticket for robot in robots), now)
