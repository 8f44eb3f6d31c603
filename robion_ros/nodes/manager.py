# SPDX-License-Identifier: Apache-2.0
"""
Manager node: decides which server answers which robot, and tells the servers.

It plans when the set of living servers changes and when an operator asks. It does not know
images, chunks or devices; servers go on serving without it, and when it starts again it goes on
from what they say.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
import sys
from time import monotonic

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from std_msgs.msg import Header

from robion_ros.config import FactoryConfig
from robion_ros.factory_file import load
from robion_ros.manager import errors
from robion_ros.manager.handover import Place
from robion_ros.manager.homes import Homes
from robion_ros.manager.planner import FactoryPlan, plan_most
from robion_ros.manager.population import BadPopulation, new_models, with_robot, without_robot
from robion_ros.msg import Assignment, RobotAssignment, ServerStatus
from robion_ros.nodes import answers, qos, said
from robion_ros.nodes.announcement import Announcement
from robion_ros.nodes.described import knowing
from robion_ros.nodes.diagnostics import manager_diagnostic
from robion_ros.nodes.fleet import Fleet
from robion_ros.nodes.parameters import declare, Parameter
from robion_ros.nodes.planning import Planning
from robion_ros.nodes.spin import run, STOPPED
from robion_ros.nodes.spinner import one_thread
from robion_ros.nodes.transition import Applied, Transition
from robion_ros.nodes.watch import LISTEN_TIME, Watch
from robion_ros.srv import Rebalance, RegisterRobot, UnregisterRobot
from robion_ros.words import count

PARAMETERS = (
    Parameter('config', 'factory.yaml', 'path of the factory file'),
    Parameter('period', 0.05, 'how often the set of living servers is looked at, s', 0.01, 10),
    Parameter('settle_time', 1.0, 'how long new servers are waited for before planning, s', 0, 60),
    Parameter('handover_timeout', 3.0, 'longest wait for the server a robot goes to, s', 0, 3600),
)

START_TIME = 10.0
"""After so long, s, an operator is told which servers are not there."""
AGREEMENT_TIME = 1.0
"""So long after a change, s, a server must say that it does as told."""


class ManagerNode(Node):
    """The manager: wiring between the fleet, the planner and the operator."""

    def __init__(self) -> None:
        super().__init__('manager')
        self.exit_code = 0
        values = declare(self, PARAMETERS)
        self._config = str(values['config'])
        self._factory = load(self._config)
        settings = self._factory.manager
        if self.get_name() != settings.name:
            raise ValueError(f'the manager of {self._config} is called {settings.name!r}, '
                             f'this node {self.get_name()!r}: start it with -r '
                             f'__node:={settings.name}')
        self._handover_timeout = float(values['handover_timeout'])
        self._models = {robot: model for model, robots in self._factory.robots.items()
                        for robot in robots}
        self._running: dict[str, Place] = {}
        self._homes = Homes()
        self._met: set[str] = set()
        """Servers that have been heard."""
        self._homeless: set[str] = set()
        """Models of robots that no living server had at the last plan."""
        self._started = self._changed = self._called_off = monotonic()
        self._epoch = 0
        self._published: list[RobotAssignment] | None = None
        self._problem = 'waiting for servers'
        """What needs an operator's eye now."""
        self._fleet = Fleet(self, self._factory.servers, settings.server_timeout,
                            settings.call_timeout)
        self._watch = Watch(self._factory.servers, settings.server_timeout,
                            float(values['settle_time']))
        self._assignment = self.create_publisher(Assignment, f'~/{qos.ASSIGNMENT}',
                                                 qos.LATCHED_QOS)
        self._diagnostics = self.create_publisher(DiagnosticArray, qos.DIAGNOSTICS,
                                                  qos.DIAGNOSTICS_QOS)
        Announcement(self, LISTEN_TIME, self._give_way)
        self._planning = Planning(self, self._look)
        for kind, name, respond in ((Rebalance, qos.REBALANCE, self._on_rebalance),
                                    (RegisterRobot, qos.REGISTER, self._on_register),
                                    (UnregisterRobot, qos.UNREGISTER, self._on_unregister)):
            self._planning.serve(kind, f'~/{name}', respond)
        # Servers are looked after also where simulated time stands still or jumps.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(float(values['period']), self._on_timer, clock=steady)
        self.create_timer(1.0, self._on_diagnostics_timer, clock=steady)

    def close(self) -> None:
        """End the thread that plans, when robots that are on the move have arrived."""
        self._planning.close()

    def _give_way(self) -> None:
        """Leave the robots to a manager of this name that was there before."""
        self.get_logger().fatal(
            f'a manager {self.get_name()!r} runs already, here or on another machine of this ROS '
            'domain; stop that one first, or give this factory another manager.name')
        self.exit_code = 2
        STOPPED.set()

    def _on_timer(self) -> None:
        self._watch.look(self._fleet.timeout)
        self._planning.look()

    def _look(self) -> None:
        """Plan again when servers or models came or went, or are not as they should be."""
        alive = self._fleet.alive()
        if not self._watch.doubt(alive):
            self._watch.distrust(self._astray())
            self._call_off()
            ours = self._watch.obedient(alive)
            if self._watch.due(alive) or self._homeless & said.loaded(alive, ours):
                self._replan(alive)

    def _astray(self) -> list[str]:
        """Return the obedient servers that say, since a while, that they do something else."""
        fresh = self._fleet.alive(since=self._changed + AGREEMENT_TIME)
        astray = [name for name in self._watch.obedient(fresh)
                  if not said.obeys(name, fresh[name], self._running)]
        for name in astray:
            self.get_logger().warning(f'{name} serves other robots than it was told to')
        return astray

    def _call_off(self) -> None:
        """Let servers that were cut off let go at once of the robots that others took over."""
        alive = self._fleet.alive(since=self._called_off)
        obedient = self._watch.obedient(alive)
        if strays := said.find_strays(alive, obedient, self._running):
            self.get_logger().warning(f'{", ".join(sorted(strays))}: heard again, answering '
                                      'robots that others have taken over; called off')
            terms = {name: alive[name].term for name in strays}
            calling = Transition(self._fleet, self._epoch, self._handover_timeout, terms)
            self._epoch = calling.confirm(self._running, strays, obedient)
            self._called_off = monotonic()

    def _replan(self, alive: Mapping[str, ServerStatus]) -> None:
        running = self._where(alive)
        there = said.loaded(alive, alive)
        models = {robot: model for robot, model in self._models.items() if model in there}
        problems = [f'no living server has model {model} loaded' for model in
                    sorted(set(self._models.values()) - there)]
        try:
            # After a loss the rest must go on: serve the most robots that fit, and say so.
            plan, unserved = self._plan(models, alive, running)
        except errors.PlanError as error:
            # What runs goes on.
            self._enforced(running, alive, self._watch.obedient(alive), [*problems, str(error)],
                           again=True)
            return
        self._apply(plan, running, alive, [*problems, *answers.left_out(unserved)])

    def _plan(self, models: Mapping[str, str], alive: Mapping[str, ServerStatus],
              running: Mapping[str, Place]) -> tuple[FactoryPlan, errors.Unserved | None]:
        """Plan for all robots, or for the most that fit and with why not for more."""
        lost = any(place.server not in alive for place in self._running.values())
        self._homes.lose(self._running, running)
        return plan_most(self._factory, models, said.hosts(alive), running,
                         said.capacities(alive), self._homes.open(alive), lost)

    def _on_rebalance(self, request: Rebalance.Request) -> Rebalance.Response:
        asked = answers.populations(request)
        return self._change([item.model for item in asked], lambda factory: new_models(
            factory, self._models, asked), request.dry_run, request.allow_partial)

    def _on_register(self, request: RegisterRobot.Request) -> RegisterRobot.Response:
        if (place := self._running.get(request.robot)) and place.model == request.model:
            return answers.served_already(request.robot, place)  # Also while others are left out.
        changed = self._change([request.model], lambda factory: with_robot(
            factory, self._models, request.robot, request.model), request.dry_run)
        return answers.narrow(RegisterRobot.Response, changed,
                              server=answers.server_of(changed, request.robot))

    def _on_unregister(self, request: UnregisterRobot.Request) -> UnregisterRobot.Response:
        return answers.narrow(UnregisterRobot.Response, self._change(
            (), lambda _: without_robot(self._models, request.robot), request.dry_run, True))

    def _change(self, named: Iterable[str], new: Callable[[FactoryConfig], dict[str, str]],
                dry_run: bool, allow_partial: bool | None = None) -> Rebalance.Response:
        """
        Plan for the robots that new returns, and put the plan into force; say what came.

        Models that are named and not known may have been written into the factory file since.
        """
        alive = self._fleet.alive()
        if doubt := self._watch.doubt(alive):
            return Rebalance.Response(message=doubt, error_code=Rebalance.Response.NO_SERVER)
        try:
            self._factory = knowing(self._factory, self._config, named)
            running, models = self._where(alive), new(self._factory)
            plan, unserved = self._plan(models, alive, running)
            response = answers.planned(plan, models, dry_run, unserved)
            if unserved and not allow_partial:
                return (answers.refused(unserved) if allow_partial is None
                        else answers.refused_but(response, unserved))
            if not dry_run:
                start, self._models = monotonic(), models
                applied = self._apply(plan, running, alive, answers.left_out(unserved))
                answers.put_into_force(response, applied, monotonic() - start)
            return response
        except (errors.PlanError, BadPopulation) as error:
            return answers.refused(error)

    def _where(self, alive: Mapping[str, ServerStatus]) -> dict[str, Place]:
        """Return where robots are answered now: as servers were told, or as they say."""
        obedient = self._watch.obedient(alive)
        self._learn(alive)
        strangers = {name: status for name, status in alive.items() if name not in obedient}
        return said.places(strangers) | {
            robot: place for robot, place in self._running.items() if place.server in obedient}

    def _learn(self, alive: Mapping[str, ServerStatus]) -> None:
        """Take over the populations that a manager before this one was told, from its servers."""
        begun = self._published is not None
        new = {name: status for name, status in alive.items() if name not in self._met}
        self._met |= new.keys()
        for robot, model in said.robot_models(new if begun else alive).items():
            if model in self._factory.models and not (begun and robot in self._models):
                self._models[robot] = model

    def _apply(self, plan: FactoryPlan, running: Mapping[str, Place],
               alive: Mapping[str, ServerStatus], problems: list[str]) -> Applied:
        start = monotonic()
        terms = {name: status.term for name, status in alive.items()}
        applied = Transition(self._fleet, self._epoch, self._handover_timeout, terms).apply(
            running, plan.places, alive, unsure=alive.keys() - self._watch.obedient(alive))
        self._epoch = applied.epoch
        obedient = alive.keys() - applied.failures.keys()
        self._enforced(applied.places, alive, obedient, [*problems, *applied.failures.values()],
                       again=bool(applied.failures))
        self._homes.settle(self._models, obedient)
        moves = sum(running.get(robot, place) != place for robot, place in self._running.items())
        placed = len(self._running.keys() - running)
        self.get_logger().info(
            f'{len(self._running)} of {count(len(self._models), "robot")} assigned, {placed} of '
            f'them placed, {moves} moved; solved in {plan.traffic.solve_s * 1e3:.0f} ms, in force '
            f'after {(monotonic() - start) * 1e3:.0f} ms')
        return applied

    def _enforced(self, where: Mapping[str, Place], alive: Mapping[str, ServerStatus],
                  obedient: Collection[str], problems: list[str], again: bool) -> None:
        """Keep and publish what is in force now, and say what is not as it should be."""
        self._running = dict(where)
        self._homeless = set(self._models.values()) - said.loaded(alive, alive)
        self._changed = monotonic()
        self._watch.planned(alive, obedient, again)
        if (robots := answers.assignments(self._models, self._running)) != self._published:
            self._published = robots
            self._epoch = max(self._epoch, self._fleet.epoch()) + 1
            self._assignment.publish(Assignment(
                header=Header(stamp=self.get_clock().now().to_msg()), epoch=self._epoch,
                robots=robots))
        problem = '; '.join([*problems, *self._fleet.silences()])
        if problem and problem != self._problem:
            self.get_logger().warning(problem)
        self._problem = problem

    def _on_diagnostics_timer(self) -> None:
        problem = self._problem  # Kept by the thread that plans.
        if self._published is None and monotonic() - self._started >= START_TIME:
            missing = sorted(self._factory.servers.keys() - self._fleet.alive().keys())
            if missing:
                problem = f'waiting for servers to be active: {", ".join(missing)}'
                self.get_logger().warning(problem, throttle_duration_sec=START_TIME)
        self._fleet.forget(self._models)
        problem = '; '.join(filter(None, [problem, self._fleet.disagreement()]))
        self._diagnostics.publish(DiagnosticArray(
            header=Header(stamp=self.get_clock().now().to_msg()),
            status=[manager_diagnostic(self.get_name(), problem, len(self._fleet.alive()),
                                       len(self._models), len(self._running), self._epoch)]))


def main(args: list[str] | None = None) -> int:
    """Run a manager node."""
    # Servers are heard also while a plan is searched for: by default Python lets the one thread
    # wait for the other 5 ms for each message.
    sys.setswitchinterval(0.0005)
    return run(ManagerNode, lambda _: one_thread(), __doc__ or '', PARAMETERS, args,
               finish=ManagerNode.close)


if __name__ == '__main__':
    raise SystemExit(main())
