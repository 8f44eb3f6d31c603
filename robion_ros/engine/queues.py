# SPDX-License-Identifier: Apache-2.0
"""
One FIFO of tickets for each model, at most one ticket for each robot in it.

Knows neither threads (the engine holds the lock) nor stages.
"""

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from robion_ros.engine.batch import Batch, batch_sizes, Ticket
from robion_ros.engine.lockstep_times import Finish, never_late
from robion_ros.engine.policies import Policy, Waiting
from robion_ros.engine.profile import Load


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

    def add(self, model: str) -> None:
        """Begin a line for one more model."""
        self._queues[model] = {}
        self._served[model] = -1

    def drop(self, model: str) -> None:
        """End the line of a model, in which nothing waits."""
        assert not self._queues[model]
        del self._queues[model], self._served[model]

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

    def hasten(self, leaves: Callable[[str, str], bool]) -> None:
        """
        Let the tickets of those that leave, by robot and model, go first, whatever their deadline.

        A robot that is answered elsewhere now must not get an old answer after a new one.
        """
        for model, queue in self._queues.items():
            hurried = {robot: Place(place.ticket, -inf) for robot, place in queue.items()
                       if leaves(robot, model)}
            self._queues[model] = hurried | {robot: place for robot, place in queue.items()
                                             if robot not in hurried}

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

    def remove_lost(self, finish: Finish) -> tuple[Ticket, ...]:
        """Take out the tickets that can no longer meet their deadlines."""
        lost = [place.ticket for model, queue in self._queues.items() for place in queue.values()
                if not can_meet(place, finish(Load(model, 1)))]
        for ticket in lost:
            del self._queues[ticket.request.model][ticket.request.robot]
        return tuple(lost)

    def take(self, now: float, finish: Finish = never_late) -> Batch | None:
        """
        Form the next batch: the policy picks the model, the head of its line goes.

        In line are the tickets that can still meet their deadlines, going by when a batch would
        finish. The others, of all models, go when none of those is left, as if nothing were
        known of finishing.

        The size is the largest power of two, up to max_batch, of tickets that can meet their
        deadlines in such a batch: the VLM stage is compute-bound, so rows that pad a batch would
        cost as much as requests.
        """
        lines = {model: [place for place in queue.values()
                         if can_meet(place, finish(Load(model, 1)))]
                 for model, queue in self._queues.items()}
        waiting = [Waiting(model, len(line), line[0].deadline, self._served[model])
                   for model, line in lines.items() if line]
        if not waiting:
            return self.take(now) if len(self) else None
        model = self._policy(waiting).model
        for size in batch_sizes(self._max_batch):
            end = finish(Load(model, size))
            taken = [place.ticket for place in lines[model] if can_meet(place, end)][:size]
            if len(taken) == size:
                break
        for ticket in taken:
            del self._queues[model][ticket.request.robot]
        self._served[model] = self._taken
        self._taken += 1
        return Batch(model, tuple(taken), now)


def can_meet(place: Place, finish: float) -> bool:
    """Return whether a chunk at that time would be in time: for the newest ticket, which goes."""
    return place.ticket.request.deadline >= finish or place.deadline == -inf
