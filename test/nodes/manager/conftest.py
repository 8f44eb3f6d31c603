# SPDX-License-Identifier: Apache-2.0
"""A manager among servers that are made up: what they do is what a test tells them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, RLock, Thread
from time import time_ns

from diagnostic_msgs.msg import DiagnosticArray
import pytest
import rclpy
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node

from robion_ros.factory_file import load
from robion_ros.msg import Assignment, Population, RobotAssignment, RobotStatus, ServerStatus
from robion_ros.nodes import qos
from robion_ros.nodes.convert import to_duration
from robion_ros.nodes.manager import ManagerNode
from robion_ros.nodes.spinner import one_thread
from robion_ros.srv import AssignRobots, Rebalance

from ...waiting import until

PATIENCE = 30.0
FACTORY = """
models:
  pick: &arm
    architecture: tiny
    cameras: [front]
    joints: [a]
    rate: 2.0
    slo: 0.2
    capacity: 4
  place: *arm
servers:
  server_0: {models: [pick, place]}
  server_1: {models: [pick, place]}
robots:
  pick: [robot_1, robot_2, robot_3]
  place: [robot_4, robot_5]
manager: {server_timeout: 1.5, call_timeout: 0.5}
"""


class FakeServer(Node):
    """Keeps a roster as a server does, or fails to."""

    def __init__(self, name: str, floor: 'Floor') -> None:
        super().__init__(name)
        self.floor = floor
        self.incarnation = time_ns()
        self.state = ServerStatus.ACTIVE
        self.models = ['pick', 'place']
        self.capacities: list[int] = []
        self.ready = True
        self.mute = False
        self.server_timeout = load(floor.config).manager.server_timeout
        self.refusal = ''
        self.hold: Event | None = None
        self.epoch = 0
        self.calls: list[AssignRobots.Request] = []
        self.robots: dict[str, RobotStatus] = {}
        self.last: tuple[AssignRobots.Request, AssignRobots.Response] | None = None
        self.announce()
        self.timer = self.create_timer(0.2, self.beat,
                                       callback_group=MutuallyExclusiveCallbackGroup())
        self.offer()

    def announce(self) -> None:
        self.status = self.create_publisher(ServerStatus, '~/status', qos.LATCHED_QOS)

    def offer(self) -> None:
        self.service = self.create_service(AssignRobots, '~/assign', self.on_assign,
                                           callback_group=MutuallyExclusiveCallbackGroup())

    @property
    def active(self) -> dict[str, str]:
        """The robots that are answered, with their models."""
        return {name: robot.model for name, robot in list(self.robots.items())
                if robot.state == RobotStatus.ACTIVE}

    def beat(self) -> None:
        with self.floor.lock:
            for name in self.active:
                self.robots[name].ready = self.ready
            if not self.mute:
                self.status.publish(ServerStatus(
                    server=self.get_name(), incarnation=self.incarnation, state=self.state,
                    server_timeout=to_duration(self.server_timeout),
                    models=self.models, capacities=self.capacities, epoch=self.epoch,
                    robots=list(self.robots.values())))

    def on_assign(self, request: AssignRobots.Request,
                  response: AssignRobots.Response) -> AssignRobots.Response:
        if self.hold:
            self.hold.wait(PATIENCE)
        with self.floor.lock:
            self.calls.append(request)
            if self.refusal:
                return AssignRobots.Response(message=self.refusal)
            if self.last and self.last[0] == request:
                return self.last[1]
            if request.epoch <= self.epoch:
                return AssignRobots.Response(message=f'epoch {request.epoch} is stale',
                                             error_code=AssignRobots.Response.STALE_EPOCH)
            self.epoch = request.epoch
            response = AssignRobots.Response(success=True, released=self.apply(request))
            self.last = request, response
            self.floor.check()
            return response

    def apply(self, request: AssignRobots.Request) -> list[RobotAssignment]:
        """Take the set; return what was let go."""
        wanted = {item.robot: item for item in request.robots}
        active = self.active
        released = [RobotAssignment(
            robot=name, last_request=self.robots[name].last_request,
            watermark=self.robots[name].watermark, prompt=self.robots[name].prompt,
            prompt_stamp=self.robots[name].prompt_stamp)
            for name in active if name not in wanted or wanted[name].standby]
        self.robots = {name: self.robots.get(name, RobotStatus(robot=name)) for name in wanted}
        for name, item in wanted.items():
            robot = self.robots[name]
            robot.model, robot.ready = item.model, self.ready
            robot.state = RobotStatus.STANDBY if item.standby else RobotStatus.ACTIVE
            if not item.standby:
                robot.last_request = max(robot.last_request, item.last_request)
        return released

    def die(self) -> None:
        """Be heard no more, as after kill -9."""
        self.mute = True
        self.destroy_service(self.service)
        with self.floor.lock:
            self.robots = {}

    def restart(self) -> None:
        """Begin anew, as a process that was started again."""
        with self.floor.lock:
            self.incarnation = time_ns()
            self.epoch, self.robots, self.last, self.mute = 0, {}, None, False
        self.offer()

    def sent(self, robot: str) -> list[RobotAssignment]:
        """Return how it was told to serve a robot, call by call."""
        return [item for call in list(self.calls) for item in call.robots if item.robot == robot]


@dataclass
class Floor:
    """The servers, the operator and, when it is started, the manager."""

    config: Path
    lock: RLock = field(default_factory=RLock)
    servers: dict[str, FakeServer] = field(default_factory=dict)
    doubled: list[str] = field(default_factory=list)
    """Robots that two servers answered at once."""
    assignments: list[Assignment] = field(default_factory=list)
    diagnostics: list[str] = field(default_factory=list)
    exits: ExitStack = field(default_factory=ExitStack)
    cut_off: set[str] = field(default_factory=set)
    """Servers that may answer robots which others took over."""

    def start(self) -> None:
        self.executor = MultiThreadedExecutor(num_threads=6)
        self.operator = Node('operator')
        self.executor.add_node(self.operator)
        self.operator.create_subscription(Assignment, 'manager/assignment',
                                          self.assignments.append, qos.LATCHED_QOS)
        self.operator.create_subscription(
            DiagnosticArray, qos.DIAGNOSTICS,
            lambda array: self.diagnostics.extend(
                f'{entry.level[0]} {entry.message}' for entry in array.status), 10)
        self.client = self.operator.create_client(Rebalance, 'manager/rebalance')
        spinning = self.spin(self.executor)
        self.exits.callback(self.operator.destroy_node)
        self.exits.callback(lambda: [server.destroy_node() for server in self.servers.values()])
        self.exits.callback(spinning.close)

    @staticmethod
    def spin(executor: MultiThreadedExecutor) -> ExitStack:
        """Spin in a thread until what is returned is closed."""
        ended = Event()

        def spin() -> None:
            while not ended.is_set():
                executor.spin_once(timeout_sec=0.1)

        thread = Thread(target=spin)
        thread.start()
        ending = ExitStack()
        ending.callback(executor.shutdown)
        ending.callback(thread.join)
        ending.callback(ended.set)
        return ending

    @property
    def complaint(self) -> str:
        """What the manager has said last in /diagnostics, behind its level."""
        return self.diagnostics[-1] if self.diagnostics else ''

    def add(self, name: str = 'server_0', **values: object) -> FakeServer:
        """Start a server."""
        server = self.servers[name] = FakeServer(name, self)
        for key, value in values.items():
            setattr(server, key, value)
        self.executor.add_node(server)
        return server

    def manage(self) -> Callable[[], None]:
        """Start a manager; return how to end it."""
        manager = self.manager = ManagerNode()
        spinner = one_thread()
        spinner.add_node(manager)
        thread = Thread(target=spinner.spin)
        thread.start()
        ending = ExitStack()
        for step in (manager.destroy_node, spinner.shutdown, thread.join, spinner.stop,
                     manager.close):
            ending.callback(step)
        self.exits.callback(ending.close)
        return ending.close

    def check(self) -> None:
        """Note robots that two living servers answer."""
        seats = [robot for name, server in self.servers.items()
                 if name not in self.cut_off for robot in server.active]
        self.doubled += {robot for robot in seats if seats.count(robot) > 1}

    @property
    def places(self) -> dict[str, tuple[str, str]]:
        """(model, server) of every robot that is answered."""
        return {robot: (model, name) for name, server in self.servers.items()
                for robot, model in server.active.items()}

    @property
    def announced(self) -> dict[str, tuple[str, str]]:
        """The same as the manager has published it last."""
        return {robot.robot: (robot.model, robot.server) for robot in self.assignments[-1].robots
                if robot.server} if self.assignments else {}

    def until(self, condition: Callable[[], object], what: str = '') -> None:
        until(condition, lambda: what or f'{self.places}, {self.diagnostics[-3:]}', PATIENCE, 0.02)

    def known(self, robot: str) -> int:
        """Return the request that the manager has heard of last."""
        status = self.manager._fleet.robots().get(robot)
        return status.last_request if status else -1

    def settled(self, count: int) -> bool:
        """Return whether so many robots are answered, where the manager says."""
        return len(self.places) == count and self.announced == self.places

    def ask(self, *populations: Population, **options: bool) -> 'rclpy.Future':
        """Call rebalance and do not wait."""
        self.until(self.client.service_is_ready)
        return self.client.call_async(Rebalance.Request(populations=populations, **options))

    def rebalance(self, *populations: Population, **options: bool) -> Rebalance.Response:
        future = self.ask(*populations, **options)
        self.until(future.done, 'rebalance answers')
        return future.result()


@pytest.fixture
def floor(tmp_path: Path, own_domain: None,
          request: pytest.FixtureRequest) -> Iterator[Floor]:
    """Return a factory without servers or manager; an indirect parameter is its file."""
    config = tmp_path / 'factory.yaml'
    config.write_text(getattr(request, 'param', FACTORY))
    rclpy.init(args=['--ros-args', '-p', f'config:={config}', '-p', 'settle_time:=0.3',
                     '-p', 'handover_timeout:=1.0'])
    floor = Floor(config)
    try:
        floor.start()
        yield floor
    finally:
        floor.exits.close()
        rclpy.shutdown()
    assert not floor.doubled


@pytest.fixture
def served(floor: Floor) -> Floor:
    """Return a floor on which five robots are answered."""
    for number in range(2):
        floor.add(f'server_{number}')
    floor.manage()
    floor.until(lambda: floor.settled(5))
    return floor
