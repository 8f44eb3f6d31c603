# SPDX-License-Identifier: Apache-2.0
"""The life of a node's process, from arguments to exit code."""

from collections.abc import Callable, Iterator
import os
import signal
import subprocess
import sys
from threading import Thread, Timer
from types import FrameType
from typing import Any

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from robion_ros.nodes import spin
from robion_ros.nodes.parameters import Parameter
from robion_ros.nodes.spinner import one_thread, Spinner

pytestmark = pytest.mark.ros

TABLE = (Parameter('rate', 5.0, 'how often, Hz'),)


class Recorder(Node):
    """A node that does something once it spins and tells what became of it."""

    def __init__(self, act: Callable[['Recorder'], None]) -> None:
        super().__init__('recorder')
        self.exit_code = 0
        self.log: list[str] = []
        self.create_timer(0.01, lambda: act(self))

    def close(self) -> None:
        self.log.append('closed' if rclpy.ok() else 'closed too late')

    def destroy_node(self) -> None:
        self.log.append('destroyed')
        super().destroy_node()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Put the signal handlers back that a run takes over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(params=[lambda _: one_thread(),
                        lambda _: Spinner(SingleThreadedExecutor())],
                ids=['own', 'single'])
def run(own_domain: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
        ) -> Callable[..., tuple[int, list[str]]]:
    """Run a node as main does."""
    monkeypatch.setattr(spin, 'STOPPED', spin.Flag())

    def run(act: Callable[[Any], None], *words: str) -> tuple[int, list[str]]:
        nodes = []

        def make() -> Recorder:
            nodes.append(Recorder(act))
            return nodes[-1]
        code = spin.run(make, request.param, 'A node.', TABLE, ['program', *words])
        assert not rclpy.ok()
        return code, nodes[0].log if nodes else []
    return run


Run = Callable[..., tuple[int, list[str]]]


@pytest.mark.parametrize('numbers', [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 20,
                                     [signal.SIGTERM, signal.SIGINT] * 20],
                         ids=['SIGINT', 'SIGTERM', 'many', 'mixed'])
def test_a_signal_ends_it_in_order(run: Run, numbers: list[int]) -> None:
    def act(node: Recorder) -> None:
        for number in numbers:
            os.kill(os.getpid(), number)
    assert run(act) == (0, ['closed', 'destroyed'])


@pytest.mark.parametrize(('act', 'error'), [
    (lambda node: 1 // 0, 'ZeroDivisionError'), (lambda node: sys.exit(0), 'SystemExit')],
    ids=['error', 'exit'])
def test_a_fault_in_a_callback_ends_it_with_1(run: Run, capfd: pytest.CaptureFixture[str],
                                              act: Callable[[Any], Any], error: str) -> None:
    assert run(act) == (1, ['closed', 'destroyed'])
    assert error in capfd.readouterr().err


def test_a_node_that_shuts_down_chooses_its_exit_code(run: Run) -> None:
    def act(node: Recorder) -> None:
        node.exit_code = 2
        rclpy.try_shutdown()
    assert run(act)[0] == 2


def wrong(node: Any) -> None:
    raise AssertionError('it never spins')


@pytest.mark.parametrize(('words', 'message'), [
    (['-p', 'rate'], "'-p rate'"),
    (['-r', '__node:=1st'], '__node:=1st'),
    (['--nonsense'], '--nonsense'),
    (['--params-file', 'nowhere.yaml'], 'nowhere.yaml'),
    (['-p', 'use_sim_time:=maybe'], "'maybe'"),
])
def test_arguments_that_ros_does_not_take_end_it_with_2(
        run: Run, capfd: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert run(wrong, '--ros-args', *words) == (2, [])
    err = capfd.readouterr().err
    assert message in err
    assert 'program: ' in err
    assert 'Traceback' not in err


def test_a_wrong_configuration_ends_it_with_2(own_domain: None,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> Any:
        raise ValueError('models: is empty')
    assert spin.run(make, lambda _: one_thread(), '', TABLE, ['program']) == 2
    assert capsys.readouterr().err == 'program: models: is empty\n'
    assert not rclpy.ok()


@pytest.mark.parametrize('word', ['-h', '--help'])
def test_help(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert spin.run(wrong, lambda _: one_thread(), 'A node.', TABLE, ['program', word]) == 0
    out = capsys.readouterr().out
    assert 'A node.' in out
    assert 'rate  how often, Hz (default: 5.0)' in out


def test_a_signal_may_come_while_the_flag_is_being_set() -> None:
    """At every line of set, its handler calls set again, as a second signal would."""
    flag = spin.Flag()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if event == 'line':
            sys.settrace(None)
            flag.set()
            sys.settrace(trace)
        return trace

    def interrupted() -> None:
        sys.settrace(trace)
        flag.set()
        sys.settrace(None)
    assert not flag.is_set()
    thread = Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert flag.is_set()
    flag.wait()


def test_the_flag_wakes_who_waits() -> None:
    flag = spin.Flag()
    Timer(0.05, flag.set).start()
    flag.wait()
    assert flag.is_set()


def test_a_close_that_hangs_after_a_fault_does_not_keep_the_process(own_domain: None) -> None:
    script = """
import sys
from threading import Event
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from robion_ros.nodes import spin
from robion_ros.nodes.spinner import Spinner
class Stuck(Node):
    exit_code = 0
    def close(self):
        Event().wait()
def make():
    node = Stuck('stuck')
    node.create_timer(0.01, lambda: 1 // 0)
    return node
spin.END_TIME = 1.0
sys.exit(spin.run(make, lambda _: Spinner(SingleThreadedExecutor()), '', (), ['program']))
"""
    result = subprocess.run([sys.executable, '-P', '-c', script], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == 1, result.stderr
    assert 'ZeroDivisionError' in result.stderr
    assert 'in close' in result.stderr, 'it says where'
