# SPDX-License-Identifier: Apache-2.0
"""What runs a node's callbacks: the same with every executor, also beyond what it can do."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident, Thread
from time import monotonic, sleep
from typing import Any

import pytest
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.executors import (
    ExternalShutdownException,
    MultiThreadedExecutor,
    SingleThreadedExecutor,
)
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import String
from std_srvs.srv import Trigger

from robion_ros.nodes import spinner as module
from robion_ros.nodes.spinner import EventsSpinner, one_thread, Spinner

from ..waiting import TIMEOUT, until

pytestmark = pytest.mark.ros

has_events = pytest.mark.skipif(not module.EventsExecutor, reason='no EventsExecutor in this ROS')


@contextmanager
def spinning(spinner: Spinner) -> Iterator[list[Exception]]:
    """Spin in a thread; yield what spin raised."""
    raised: list[Exception] = []

    def spin() -> None:
        try:
            spinner.spin()
        except Exception as error:
            raised.append(error)
    thread = Thread(target=spin)
    thread.start()
    yield raised
    spinner.stop()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    spinner.shutdown()


def send_numbers(spinner: Spinner, publisher: 'Publisher[String]', heard: list[int], count: int,
                 pause: float) -> None:
    """Publish numbers, with a pause after each, while a node spins, until all were heard."""
    with spinning(spinner) as raised:
        until(publisher.get_subscription_count)
        for number in range(count):
            publisher.publish(String(data=str(number)))
            sleep(pause)
        until(lambda: len(heard) >= count or raised)


@pytest.fixture
def node(own_domain: None) -> Iterator[Node]:
    rclpy.init(args=[])
    node = rclpy.create_node('spun')
    yield node
    node.destroy_node()
    rclpy.try_shutdown()


@pytest.fixture(params=[one_thread, lambda: Spinner(SingleThreadedExecutor()),
                        lambda: Spinner(MultiThreadedExecutor(num_threads=2))],
                ids=['one_thread', 'single', 'multi'])
def spinner(node: Node, request: pytest.FixtureRequest) -> Spinner:
    found: Spinner = request.param()
    found.add_node(node)
    return found


def test_it_runs_messages_timers_and_services(node: Node, spinner: Spinner) -> None:
    heard: list[str] = []
    beats: list[int] = []
    publisher = node.create_publisher(String, 'topic', 10)

    def answer(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return Trigger.Response(success=True, message='here')

    def begin() -> None:
        timer.cancel()  # What is created while it spins is heard as well.
        node.create_subscription(String, 'topic', lambda message: heard.append(message.data), 10)
        node.create_service(Trigger, 'service', answer)
        node.create_timer(0.01, lambda: beats.append(get_ident()), clock=steady)
    steady = Clock(clock_type=ClockType.STEADY_TIME)
    timer = node.create_timer(0.01, begin, clock=steady)
    client = node.create_client(Trigger, 'service')
    with spinning(spinner):
        until(publisher.get_subscription_count)
        publisher.publish(String(data='a'))
        publisher.publish(String(data='b'))
        until(lambda: heard == ['a', 'b'] and len(beats) > 3)
        until(client.service_is_ready)
        future = client.call_async(Trigger.Request())
        until(future.done)
        assert future.result().message == 'here'


def test_what_a_callback_raises_comes_out(node: Node, spinner: Spinner) -> None:
    node.create_timer(0.01, lambda: 1 // 0)
    with spinning(spinner) as raised:
        until(lambda: raised)
    assert [type(error) for error in raised] == [ZeroDivisionError]


def test_it_ends_with_the_context(node: Node, spinner: Spinner) -> None:
    thread = Thread(target=rclpy.shutdown)
    with spinning(spinner) as raised:
        thread.start()
        thread.join()
    assert {type(error) for error in raised} <= {ExternalShutdownException}


def test_a_shutdown_just_before_the_executor_waits_is_no_fault(node: Node) -> None:
    class Late(SingleThreadedExecutor):
        def spin_once(self, timeout_sec: float | None = None) -> None:
            raise rclpy_implementation.RCLError('failed to wait: context is not valid')
    spinner = Spinner(Late())
    with pytest.raises(rclpy_implementation.RCLError):
        spinner.spin()
    rclpy.shutdown()
    spinner._runs = lambda: True  # It was there when it was looked at.
    with pytest.raises(ExternalShutdownException):
        spinner.spin()


def test_it_can_be_stopped_before_it_spins(node: Node, spinner: Spinner) -> None:
    spinner.stop()
    spinner.spin()
    spinner.shutdown()


@pytest.mark.parametrize('spinner', [one_thread], indirect=True)
def test_subscriptions_may_come_and_go(node: Node, spinner: Spinner) -> None:
    publisher = node.create_publisher(String, 'topic', 10)
    rounds, heard, subscriptions = 0, 0, list[Any]()

    def hear(message: String) -> None:
        nonlocal heard
        heard += 1

    def renew() -> None:
        nonlocal rounds
        rounds += 1
        while subscriptions:
            node.destroy_subscription(subscriptions.pop())
        subscriptions.extend(
            node.create_subscription(String, 'topic', hear, 10) for _ in range(5))
        publisher.publish(String(data='x'))
    node.create_timer(0.01, renew)
    with spinning(spinner) as raised:
        until(lambda: rounds > 100 or raised)
    assert not raised
    assert heard


def test_a_ros_without_an_events_executor_has_another(
        node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'EventsExecutor', None)
    spinner = one_thread()
    assert type(spinner) is Spinner
    heard: list[str] = []
    spinner.add_node(node)
    node.create_timer(0.01, lambda: heard.append('beat'))
    with spinning(spinner):
        until(lambda: heard)


@has_events
def test_timers_and_services_keep_their_pace_under_too_many_messages(
        node: Node) -> None:
    spinner = EventsSpinner()
    spinner.add_node(node)
    sender = rclpy.create_node('sender')
    publishers = [sender.create_publisher(String, f'topic_{index}', 1) for index in range(20)]
    for index in range(20):
        node.create_subscription(String, f'topic_{index}', lambda message: sleep(0.002), 1)
    beats: list[float] = []
    node.create_service(Trigger, 'service', lambda request, response: response)
    node.create_timer(0.05, lambda: beats.append(monotonic()))
    client = sender.create_client(Trigger, 'service')
    other = Spinner(SingleThreadedExecutor())
    other.add_node(sender)
    with spinning(spinner) as raised, spinning(other):
        until(lambda: all(publisher.get_subscription_count() for publisher in publishers))
        until(client.service_is_ready)
        end, answers = monotonic() + 3.0, [client.call_async(Trigger.Request())]
        while monotonic() < end:  # Twice what the callbacks can take.
            for publisher in publishers:
                publisher.publish(String(data='x'))
            if answers[-1].done():
                answers.append(client.call_async(Trigger.Request()))
            sleep(0.02)
        # With a queue of them all, both would be behind by as long again.
        until(answers[-1].done)
        assert len(answers) > 3
        until(lambda: beats[-1] > end)
        assert monotonic() < end + 3.0
    assert not raised


@has_events
def test_nothing_is_lost_while_it_catches_up(node: Node) -> None:
    spinner = EventsSpinner()
    spinner.add_node(node)
    heard: list[int] = []
    node.create_subscription(String, 'topic',
                             lambda message: heard.append(int(message.data)), 1000)
    publisher = node.create_publisher(String, 'topic', 1000)
    node.create_timer(0.7, lambda: sleep(0.5))  # Time and again a callback takes long.
    send_numbers(spinner, publisher, heard, 300, 0.01)
    assert heard == list(range(300))


@has_events
@pytest.mark.parametrize('hurries', [True, False])
def test_that_it_was_behind_is_said_where_it_matters(
        node: Node, capfd: pytest.CaptureFixture[str], hurries: bool) -> None:
    spinner = one_thread(lambda: hurries)
    spinner.add_node(node)
    held: list[float] = []

    def hold() -> None:
        if not held:
            sleep(0.5)
        held.append(monotonic())
    node.create_timer(0.05, hold)
    with spinning(spinner):
        until(lambda: len(held) > 20)
    assert ('callbacks were' in capfd.readouterr().err) == hurries


@has_events
def test_all_that_waits_is_taken_when_it_catches_up(
        node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, 'MOST_LAG', -1.0)  # At each beat.
    spinner = EventsSpinner()
    spinner.add_node(node)
    heard: list[int] = []

    def hear(message: String) -> None:
        heard.append(int(message.data))
        sleep(0.003)
    node.create_subscription(String, 'topic', hear, 1000)
    publisher = node.create_publisher(String, 'topic', 1000)
    send_numbers(spinner, publisher, heard, 500, 0.001)
    assert heard == list(range(500))
