# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C sets a flag and raises nothing."""

from collections.abc import Iterator
import os
import signal

import pytest

from robion_ros.commands.stop import SIGNALS, Stop


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    with Stop() as stop:
        yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize('number', SIGNALS)
def test_signal_ends_a_wait_and_a_second_one_changes_nothing(stop: Stop, number: int) -> None:
    assert not stop.wait(0.0)
    os.kill(os.getpid(), number)
    assert stop.wait(60.0)
    os.kill(os.getpid(), number)
    assert stop.wait(60.0)


@pytest.mark.parametrize('number', SIGNALS)
def test_signal_after_the_end_changes_nothing_either(stop: Stop, number: int) -> None:
    with stop:
        pass
    os.kill(os.getpid(), number)
    assert not stop.wait(0.1)


def test_hangup_that_is_ignored_as_under_nohup_stays_so(stop: Stop) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Stop() as other:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not other.wait(0.1)
