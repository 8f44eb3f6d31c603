# SPDX-License-Identifier: Apache-2.0
"""What plans beside the executor: in order, while others are heard, and not after the end."""

from collections.abc import Iterator
from threading import Event, get_ident, Thread
from types import SimpleNamespace

import pytest
import rclpy
from std_msgs.msg import String
from std_srvs.srv import SetBool

from robion_ros.nodes import planning as module
from robion_ros.nodes.planning import Planning
from robion_ros.nodes.spinner import one_thread

from ..waiting import TIMEOUT, until

pytestmark = pytest.mark.ros


@pytest.fixture
def bench(own_domain: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Return a planning whose service waits for a gate, and what else its node hears."""
    rclpy.init(args=[])
    node, heard, answered, looks = rclpy.create_node('planner'), list[str](), list[bool](), [0]
    gate, stopped, threads = Event(), Event(), set[int]()
    monkeypatch.setattr(module, 'STOPPED', stopped)

    def look() -> None:
        looks[0] += 1
        threads.add(get_ident())

    def respond(request: SetBool.Request) -> SetBool.Response:
        threads.add(get_ident())
        assert gate.wait(TIMEOUT)
        answered.append(request.data)
        if not request.data:
            raise ValueError('no plan')
        return SetBool.Response(success=True)
    planning = Planning(node, look)
    planning.serve(SetBool, 'plan', respond)
    node.create_subscription(String, 'said', lambda message: heard.append(message.data), 10)
    publisher = node.create_publisher(String, 'said', 10)
    client = node.create_client(SetBool, 'plan')
    spinner = one_thread()
    spinner.add_node(node)
    thread = Thread(target=spinner.spin)
    thread.start()
    until(lambda: client.service_is_ready() and publisher.get_subscription_count())
    yield SimpleNamespace(
        node=node, planning=planning, gate=gate, stopped=stopped, threads=threads, looks=looks,
        heard=heard, answered=answered, say=lambda text: publisher.publish(String(data=text)),
        ask=lambda data: client.call_async(SetBool.Request(data=data)))
    gate.set()
    spinner.stop()
    thread.join(TIMEOUT)
    spinner.shutdown()
    planning.close()
    node.destroy_node()
    rclpy.shutdown()


def test_messages_are_heard_while_it_plans(bench: SimpleNamespace) -> None:
    first, second = bench.ask(True), bench.ask(True)
    until(lambda: bench.threads)
    bench.say('here')
    until(lambda: bench.heard == ['here'])
    assert not first.done() and not bench.answered
    bench.gate.set()
    until(lambda: first.done() and second.done())
    assert first.result().success and second.result().success
    bench.planning.look()
    until(lambda: bench.looks == [1])
    assert len(bench.threads) == 1


def test_what_was_due_many_times_meanwhile_is_done_once(bench: SimpleNamespace) -> None:
    answer = bench.ask(True)
    until(lambda: bench.threads)
    for _ in range(20):
        bench.planning.look()
    bench.gate.set()
    until(answer.done)
    bench.planning.close()
    assert bench.looks == [1]


def test_what_raises_is_said_and_ends_the_process(
        bench: SimpleNamespace, capfd: pytest.CaptureFixture[str]) -> None:
    bench.gate.set()
    answer = bench.ask(False)
    until(bench.stopped.is_set)
    assert bench.node.exit_code == 1
    assert 'ValueError: no plan' in capfd.readouterr().err
    assert not answer.done()


def test_what_waits_at_the_end_is_not_begun(bench: SimpleNamespace) -> None:
    bench.ask(True)
    until(lambda: bench.threads)
    bench.planning.look()
    ending = Thread(target=bench.planning.close)
    ending.start()
    until(lambda: bench.planning._closed)
    bench.gate.set()
    ending.join(TIMEOUT)
    assert (bench.answered, bench.looks) == ([True], [0])
