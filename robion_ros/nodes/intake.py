# SPDX-License-Identifier: Apache-2.0
"""
The line between the executor and the engine: drafts, and what has to stay in order with them.

A robot's newer draft takes the place of one that still waits, so that a server whose pictures
cannot be decoded as fast as they come falls behind by one draft of each robot, never by more.
Knows neither pictures nor the engine.
"""

from collections.abc import Callable
from functools import partial
from threading import Lock

from robion_ros.nodes.formation import Draft
from robion_ros.nodes.worker import Job, Worker

OnDraft = Callable[[Draft], None]


class Intake:
    """Hands drafts on, one after another, in a thread of its own."""

    def __init__(self, on_draft: OnDraft, on_replaced: OnDraft,
                 on_error: Callable[[BaseException], None]) -> None:
        self._on_draft = on_draft
        self._on_replaced = on_replaced
        self._waiting: dict[str, list[Draft]] = {}
        """For each robot the place in the line that its next draft may still take."""
        self._lock = Lock()
        self._worker = Worker('intake', on_error)

    def put(self, draft: Draft) -> None:
        """Queue a draft, in the place of the robot's waiting one if there is one."""
        with self._lock:
            place = self._waiting.get(draft.robot)
            if place is None:
                place = self._waiting[draft.robot] = [draft]
                self._worker.put(partial(self._take, draft.robot, place))
                return
            replaced, place[0] = place[0], draft
        self._on_replaced(replaced)

    def put_job(self, job: Job, robot: str = '') -> None:
        """
        Queue something that is done after the drafts put before and before those to come.

        With a robot, only its own drafts are kept apart: those of others may still be replaced.
        """
        with self._lock:
            if robot:
                self._waiting.pop(robot, None)
            else:
                self._waiting.clear()
            self._worker.put(job)

    def close(self) -> None:
        """Do what is queued, then end the thread."""
        self._worker.close()

    def _take(self, robot: str, place: list[Draft]) -> None:
        with self._lock:
            if self._waiting.get(robot) is place:
                del self._waiting[robot]
        self._on_draft(place[0])
