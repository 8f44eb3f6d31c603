# SPDX-License-Identifier: Apache-2.0
"""
The robots of one server, and how a new assignment changes them: whole, or not at all.

Their topics follow, one at each turn of the executor, since other robots' pictures wait
meanwhile. Runs on the executor's thread. Knows neither the engine nor the manager's plan.
"""

from collections.abc import Callable, Mapping
from functools import partial

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_msgs.msg import String

from robion_ros.config import check_name, ModelConfig, ROBOT
from robion_ros.msg import RobotAssignment, RobotStatus
from robion_ros.nodes.convert import prompt_from
from robion_ros.nodes.formation import Handover
from robion_ros.nodes.lease import Lease
from robion_ros.nodes.refused import Refused
from robion_ros.nodes.robot_link import Outputs
from robion_ros.nodes.served_robot import Hooks, Memory, ServedRobot
from robion_ros.srv import AssignRobots

MOST = 2**62
"""Greatest epoch, request number and time that is taken: more cannot be counted up to, and
counting on from there would overflow a message."""


class Refusal(ValueError):
    """An assignment that cannot be taken."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Roster:
    """Every robot this server listens to, answers, or is letting go."""

    def __init__(self, node: Node, models: Mapping[str, ModelConfig],
                 chunk_length: float, hooks: Hooks, on_change: Callable[[], None],
                 memories: dict[str, Memory], lease: Lease) -> None:
        self.robots: dict[str, ServedRobot] = {}
        self.models = dict(models)
        """Those that robots may be assigned to; others may be loaded, or let go."""
        self.chunk_length = chunk_length
        """Of the longest chunk of any of them, s."""
        self.epoch = 0
        self.term = lease.term
        """In which the robots were assigned."""
        self._lease = lease
        self._node = node
        self._hooks = hooks
        self._on_change = on_change
        self._memories = memories
        self._last: tuple[AssignRobots.Request, AssignRobots.Response] | None = None
        # Without a period: it comes again after the messages that have come meanwhile.
        self._turn = node.create_timer(0.0, self._settle_next,
                                       clock=Clock(clock_type=ClockType.STEADY_TIME))

    @property
    def active(self) -> dict[str, str]:
        """The robots that are answered, each with its model."""
        return {name: robot.formation.model for name, robot in self.robots.items()
                if robot.formation and robot.formation.active}

    def users(self, model: str) -> list[str]:
        """Return the robots that have a model, answered or listened to."""
        return [name for name, robot in self.robots.items()
                if robot.formation and robot.formation.model == model]

    def offer(self, model: str, config: ModelConfig) -> None:
        """Let robots be assigned to one more model."""
        self.models[model] = config

    def withdraw(self, model: str) -> None:
        """Let no robots be assigned to a model that none has."""
        del self.models[model]

    def apply(self, request: AssignRobots.Request) -> AssignRobots.Response:
        """Take a whole assignment; raise Refusal, and change nothing, if it is wrong."""
        if request.epoch == self.epoch and self._last and self._last[0] == request:
            return self._last[1]
        self._check(request)
        wanted = {item.robot: item for item in request.robots}
        released = [_released(name, robot.leave()) for name, robot in self.robots.items()
                    if robot.formation and name not in wanted]
        for name, item in wanted.items():
            robot = self.robots.get(name) or self._welcome(name)
            robot.listen(item.model, self.models[item.model])
            if not item.standby:
                robot.activate(Handover(item.last_request, item.watermark, item.prompt,
                                        item.prompt_stamp))
            elif robot.state == RobotStatus.ACTIVE:
                released.append(_released(name, robot.hold()))
        self.epoch = request.epoch
        self._on_change()
        for robot in self.robots.values():
            robot.form()  # What a standby has kept; not before the engine takes it.
        self.settle()
        response = AssignRobots.Response(success=True, released=released)
        self._last = request, response
        return response

    def expire(self) -> bool:
        """Let every robot go if the term has ended, since it may be served elsewhere."""
        term = self._lease.term
        if term == self.term:
            return False
        self.release_all()
        self.term = term
        self._on_change()
        return True

    def release_all(self) -> None:
        """Let every robot go; what they asked is still answered."""
        self._last = None  # A repeated call must not be told that it is in force.
        for robot in self.robots.values():
            robot.leave()
        self.settle()

    def settle(self) -> None:
        """Open and close topics, and forget robots that have left and have their last chunk."""
        if self._turn.is_canceled():  # Or it would come twice at each turn.
            self._turn.reset()

    def close(self) -> None:
        """Let go of every topic."""
        self._turn.cancel()  # It may be due already, and must not come when it is gone.
        self._node.destroy_timer(self._turn)
        for robot in self.robots.values():
            robot.close()
        self.robots.clear()

    def _settle_next(self) -> None:
        for name, robot in self.robots.items():
            if robot.settle():
                return
            if robot.has_left(self.chunk_length):
                self.robots.pop(name).close()
                return
        self._turn.cancel()

    def _welcome(self, name: str) -> ServedRobot:
        trajectory = any(model.joint_trajectory for model in self.models.values())
        outputs = partial(Outputs, self._node, name, self.chunk_length, trajectory)
        memory = self._memories.setdefault(name, Memory())
        self.robots[name] = ServedRobot(self._node, name, outputs, memory, self._hooks)
        return self.robots[name]

    def _check(self, request: AssignRobots.Request) -> None:
        codes = AssignRobots.Response
        if request.epoch <= self.epoch:
            raise Refusal(codes.STALE_EPOCH, f'epoch {request.epoch} is not newer than '
                          f'{self.epoch}, which is in force; call again with a greater one')
        if request.term not in (0, self.term):
            raise Refusal(codes.OLD_TERM, f'term {request.term} has ended, {self.term} runs: the '
                          'server was held up meanwhile, or is another process')
        if request.epoch > MOST:
            raise Refusal(codes.BAD_VALUE, f'epoch {request.epoch} cannot be, must be at most '
                          f'{MOST}')
        names: set[str] = set()
        for item in request.robots:
            _check_handover(item)
            try:
                check_name('robot', item.robot, ROBOT)
            except ValueError as error:
                raise Refusal(codes.BAD_ROBOT, str(error)) from error
            if item.robot in names:
                raise Refusal(codes.BAD_ROBOT, f'robot {item.robot!r} stands twice')
            names.add(item.robot)
            if item.model not in self.models:
                raise Refusal(codes.UNKNOWN_MODEL, f'robot {item.robot} needs model '
                              f'{item.model!r}; loaded here: {", ".join(self.models) or "none"}')


def _check_handover(item: RobotAssignment) -> None:
    """Raise Refusal where what another server is said to have known cannot be."""
    for field in ('last_request', 'watermark', 'prompt_stamp'):
        if not 0 <= getattr(item, field) <= MOST:
            raise Refusal(AssignRobots.Response.BAD_VALUE, f'{field} of robot {item.robot} is '
                          f'{getattr(item, field)}, must be from 0 to {MOST}')
    if item.prompt:
        try:
            prompt_from(String(data=item.prompt))
        except Refused as error:
            raise Refusal(AssignRobots.Response.BAD_VALUE,
                          f'prompt of robot {item.robot}: {error}') from error


def _released(name: str, handover: Handover) -> RobotAssignment:
    return RobotAssignment(
        robot=name, last_request=handover.last_request, watermark=handover.watermark,
        prompt=handover.prompt, prompt_stamp=handover.prompt_stamp)
