# SPDX-License-Identifier: Apache-2.0
"""Threads that do one thing after another."""

from collections.abc import Callable
import sys
from threading import Event, get_ident

import numpy as np

from robion_ros.nodes.formation import Draft
from robion_ros.nodes.intake import Intake
from robion_ros.nodes.worker import Worker

TIMEOUT = 20.0


def test_jobs_run_in_order_in_one_other_thread_and_to_the_end_on_close() -> None:
    done: list[tuple[int, int]] = []
    worker = Worker('w', lambda error: None)
    for number in range(100):
        worker.put(lambda number=number: done.append((number, get_ident())))
    worker.close()
    assert [number for number, _ in done] == list(range(100))
    threads = {thread for _, thread in done}
    assert len(threads) == 1
    assert get_ident() not in threads


def test_a_job_that_raises_is_told_and_ends_no_other() -> None:
    errors: list[BaseException] = []
    done: list[str] = []
    worker = Worker('w', errors.append)
    worker.put(lambda: done.append('before'))
    worker.put(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    worker.put(sys.exit)
    worker.put(lambda: done.append('after'))
    worker.close()
    assert done == ['before', 'after']
    assert [type(error) for error in errors] == [ZeroDivisionError, SystemExit]


class Line:
    """An intake whose thread waits for the test, and what became of what was put."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int]] = []
        self.gate = Event()
        self.intake = Intake(self._note('handed on'), self._note('replaced'),
                             lambda error: None)
        self.intake.put_job(self._wait)

    def _note(self, what: str) -> Callable[[Draft], None]:
        return lambda draft: self.log.append((what, draft.robot, draft.number))

    def _wait(self) -> None:
        assert self.gate.wait(TIMEOUT)

    def put(self, robot: str, number: int) -> None:
        self.intake.put(Draft(robot, 'arm', number, (), np.zeros(1), 'pick', 0.0))

    def job(self, name: str, robot: str = '') -> None:
        self.intake.put_job(lambda: self.log.append(('job', name, 0)), robot)

    def end(self) -> list[tuple[str, str, int]]:
        self.gate.set()
        self.intake.close()
        return self.log


def test_a_newer_draft_takes_the_place_of_the_waiting_one() -> None:
    line = Line()
    for number in (1, 2, 3):
        line.put('a', number)
        line.put('b', number)
    assert line.end() == [
        ('replaced', 'a', 1), ('replaced', 'b', 1), ('replaced', 'a', 2), ('replaced', 'b', 2),
        ('handed on', 'a', 3), ('handed on', 'b', 3)]


def test_drafts_stay_on_their_side_of_a_job() -> None:
    line = Line()
    line.put('a', 1)
    line.put('b', 1)
    line.job('cancel')
    line.put('a', 2)
    line.job('assign')
    line.put('a', 3)
    assert line.end() == [
        ('handed on', 'a', 1), ('handed on', 'b', 1), ('job', 'cancel', 0),
        ('handed on', 'a', 2), ('job', 'assign', 0), ('handed on', 'a', 3)]


def test_a_job_for_one_robot_lets_the_drafts_of_others_be_replaced() -> None:
    """Or one whose instruction changes all the time would make the line grow for all."""
    line = Line()
    for number in (1, 2, 3):
        line.put('a', number)
        line.put('b', number)
        line.job('cancel', 'a')
    assert line.end() == [
        ('replaced', 'b', 1), ('replaced', 'b', 2),
        ('handed on', 'a', 1), ('handed on', 'b', 3), ('job', 'cancel', 0),
        ('handed on', 'a', 2), ('job', 'cancel', 0), ('handed on', 'a', 3), ('job', 'cancel', 0)]


def test_a_draft_that_is_being_read_is_not_replaced() -> None:
    log: list[tuple[str, int]] = []
    started, free = Event(), Event()

    def read(draft: Draft) -> None:
        log.append(('handed on', draft.number))
        started.set()
        free.wait(TIMEOUT)
    intake = Intake(read, lambda draft: log.append(('replaced', draft.number)),
                    lambda error: None)
    for number in (1, 2):
        intake.put(Draft('a', 'arm', number, (), np.zeros(1), 'pick', 0.0))
        assert started.wait(TIMEOUT)
    free.set()
    intake.close()
    assert log == [('handed on', 1), ('handed on', 2)]
