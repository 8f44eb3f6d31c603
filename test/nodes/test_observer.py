# SPDX-License-Identifier: Apache-2.0
"""What an observer sees of servers, a manager and robots that a made-up node plays."""

from collections.abc import Iterator
from threading import Thread

from builtin_interfaces.msg import Duration
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

from robion_ros.commands.domain import claim_domain
from robion_ros.msg import Assignment, RobotAssignment, RobotReport, RobotStatus, ServerStatus
from robion_ros.nodes import qos
from robion_ros.nodes.observer import Observer
from robion_ros.observed import Counter, Counts, Rebalanced, Report, Seat, Server
from robion_ros.srv import Rebalance

from ..waiting import until

pytestmark = pytest.mark.ros

BEFORE = {'robot_1': 'server_0', 'robot_2': 'server_0', 'robot_3': 'server_1', 'robot_4': ''}
AFTER = {'robot_1': 'server_1', 'robot_2': 'server_0', 'robot_3': '', 'robot_4': 'server_0',
         'robot_5': 'server_0'}
"""Robots and their servers: only robot_1 has another than before."""


class Actor(Node):
    """A whole factory that does nothing but talk."""

    def __init__(self, context: rclpy.Context) -> None:
        super().__init__('actor', context=context)
        self.requests: list[Rebalance.Request] = []
        self.finished = False
        self.status = self.create_publisher(ServerStatus, 'server_0/status', qos.LATCHED_QOS)
        self.assignment = self.create_publisher(Assignment, 'manager/assignment', qos.LATCHED_QOS)
        self.reports = self.create_publisher(RobotReport, 'robot_reports', qos.REPORTS_QOS)
        self.create_service(Rebalance, 'manager/rebalance', self.on_rebalance)
        self.create_service(Trigger, 'simulated_robots/finish', self.on_finish)

    def on_rebalance(self, request: Rebalance.Request,
                     response: Rebalance.Response) -> Rebalance.Response:
        self.requests.append(request)
        return Rebalance.Response(success=True, message='moved', moved=3, objective=2,
                                  optimal=True, solve_ms=1.5, apply_ms=2.5, robots=[
                                      RobotAssignment(robot=robot, model='place', server=server)
                                      for robot, server in AFTER.items()])

    def on_finish(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self.finished = True
        return Trigger.Response(success=True, message='stopped')


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Actor]:
    environ: dict[str, str] = {}
    claim_domain(environ)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Actor(context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    thread = Thread(target=executor.spin, daemon=True)
    thread.start()
    yield node
    executor.shutdown()
    thread.join()
    node.destroy_node()
    context.try_shutdown()


@pytest.fixture
def observer(actor: Actor) -> Iterator[Observer]:
    observer = Observer(['server_0'], 'manager', 'simulated_robots')
    yield observer
    observer.close()


def status(incarnation: int, **counts: int) -> ServerStatus:
    robots = [RobotStatus(robot='robot_1', state=RobotStatus.ACTIVE, **counts),
              RobotStatus(robot='robot_2', state=RobotStatus.LEAVING)]
    return ServerStatus(server='server_0', incarnation=incarnation, state=ServerStatus.ACTIVE,
                        models=['pick'], epoch=4, robots=robots, waiting=1,
                        lockstep_time=Duration(nanosec=12_500_000))


def test_server_is_seen_as_it_is_now_and_its_counters_as_they_ever_were(
        actor: Actor, observer: Observer) -> None:
    actor.status.publish(status(1, requests=5, answered=3, late=1, superseded=2))
    until(lambda: observer.snapshot().servers)
    actor.status.publish(status(2, requests=1, cancelled=1))
    until(lambda: observer.snapshot().servers['server_0'].incarnation == 2)
    seen = observer.snapshot()
    assert seen.servers == {
        'server_0': Server('server_0', 2, 'active', ('pick',), 4, ('robot_1',), 1, 12.5)}
    assert seen.counts == {
        Counter('server_0', 1, 'robot_1'): Counts(requests=5, answered=3, late=1, superseded=2),
        Counter('server_0', 1, 'robot_2'): Counts(),
        Counter('server_0', 2, 'robot_1'): Counts(requests=1, cancelled=1),
        Counter('server_0', 2, 'robot_2'): Counts()}


def test_newest_assignment_and_reports_are_seen(actor: Actor, observer: Observer) -> None:
    actor.assignment.publish(Assignment(epoch=1, robots=[
        RobotAssignment(robot='robot_1', model='pick', server='server_0'),
        RobotAssignment(robot='robot_2', model='place')]))
    until(lambda: actor.count_subscribers('robot_reports'))
    actor.reports.publish(RobotReport(robot='robot_1', model='pick', sent=3, answered=2, late=1,
                                      unanswered=1, latency_ms=[20.0, 30.0], overhead_ms=[4.0],
                                      finished=True))
    until(lambda: observer.snapshot().seats and observer.snapshot().reports)
    assert observer.snapshot().seats == {'robot_1': Seat('pick', 'server_0'),
                                         'robot_2': Seat('place', '')}
    assert observer.snapshot().reports == {
        'robot_1': Report('robot_1', 'pick', sent=3, answered=2, late=1, unanswered=1,
                          latency_ms=(20.0, 30.0), overhead_ms=(4.0,), finished=True)}


def test_services_answer_once_they_are_there(actor: Actor, observer: Observer) -> None:
    until(lambda: not observer.missing())
    actor.assignment.publish(Assignment(epoch=1, robots=[
        RobotAssignment(robot=robot, model='pick', server=server)
        for robot, server in BEFORE.items()]))
    until(lambda: observer.snapshot().seats)
    answer = observer.rebalance({'pick': ['robot_1'], 'place': []}, dry_run=True).result(20.0)
    assert answer == Rebalanced(True, 'moved', moved=3, objective=2, optimal=True, solve_ms=1.5,
                                apply_ms=2.5, to_another_server=1)
    [request] = actor.requests
    assert request.dry_run
    assert [(item.model, list(item.robots)) for item in request.populations] == [
        ('pick', ['robot_1']), ('place', [])]
    assert observer.finish().result(20.0) == 'stopped'
    assert actor.finished


def test_services_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    environ: dict[str, str] = {}
    monkeypatch.setenv('ROS_DOMAIN_ID', claim_domain(environ))
    observer = Observer([], 'manager', 'simulated_robots')
    assert observer.missing() == ['/manager/rebalance', '/simulated_robots/finish']
    observer.close()
