# SPDX-License-Identifier: Apache-2.0
"""
Server node: serves the robots assigned to it with the models placed on its device.

A lifecycle node. configure loads the models and makes the engine ready, activate serves,
deactivate lets the robots go and answers what they had asked, cleanup frees everything; models
come and go meanwhile. It does not know the other servers, nor how robots are divided among them.
"""

import os
import sys
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.clock import Clock, ClockType
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_msgs.msg import Header

from robion_ros.config import check_choice
from robion_ros.factory_file import load as load_factory
from robion_ros.msg import ServerStatus
from robion_ros.nodes import qos
from robion_ros.nodes.absences import Absences
from robion_ros.nodes.convert import to_duration
from robion_ros.nodes.diagnosis import explain_silence
from robion_ros.nodes.engine_watch import GAP
from robion_ros.nodes.heart import Heart
from robion_ros.nodes.incarnation import HEAR_TIME, Incarnation
from robion_ros.nodes.lease import Lease
from robion_ros.nodes.life_cycle import refuse_invalid, said
from robion_ros.nodes.model_changes import ModelChanges
from robion_ros.nodes.parameters import declare, Parameter
from robion_ros.nodes.roster import Refusal
from robion_ros.nodes.served_robot import Memory, SAY_AGAIN
from robion_ros.nodes.spin import run, STOPPED
from robion_ros.nodes.spinner import one_thread
from robion_ros.nodes.status import diagnostics, server_status
from robion_ros.srv import AssignRobots

if TYPE_CHECKING:
    from robion_ros.nodes.serving import Serving

PARAMETERS = (
    Parameter('config', 'factory.yaml', 'path of the factory file'),
    Parameter('server', '', "name of this server in the factory file; '': the node's name"),
    Parameter('beside', '', 'other servers of the file on the same device of this machine, '
              'separated by spaces: they count where its memory is checked'),
    Parameter('autostart', True, 'configure and activate at start'),
    Parameter('listen_time', 1.5, 'how long another server of this name is listened for before '
              'this one speaks or loads anything, s', 0, 60),
    Parameter('status_rate', 5.0, 'status messages per second, Hz', 0.1, 100),
    Parameter('drain_timeout', 5.0, 'longest wait for requests in flight on deactivate, s',
              0, 3600),
    Parameter('hang_time', 10.0, 'a lockstep that lasts longer, s, and ten times as long as the '
              'slowest when models were tried, or an executor that hangs for longer, is a fault '
              'that ends the process; 0: none is', 0, 3600),
)

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class ServerNode(LifecycleNode):
    """One server: wiring between topics, the roster and the engine."""

    def __init__(self) -> None:
        super().__init__('server')
        self.exit_code = 0
        values = declare(self, PARAMETERS)
        self._factory = load_factory(str(values['config']))
        self._name = str(values['server']) or self.get_name()
        if self._name not in self._factory.servers:
            raise ValueError(f'server {self._name!r} is not in {values["config"]}; there are: '
                             f'{", ".join(self._factory.servers)}')
        self._beside = str(values['beside']).split()
        for other in self._beside:
            check_choice('parameter beside', other, self._factory.servers, 'server')
        self._config = str(values['config'])
        self._drain_timeout, rate = float(values['drain_timeout']), float(values['status_rate'])
        listen_time, self._hang_time = float(values['listen_time']), float(values['hang_time'])
        self._autostart = bool(values['autostart'])
        self._incarnation = Incarnation()
        self._lease = Lease(self._factory.manager.server_timeout)
        self._heart: Heart | None = None
        self._changes: ModelChanges | None = None
        self._serving: Serving | None = None
        self._state = ServerStatus.UNCONFIGURED
        self._memories: dict[str, Memory] = {}
        self._absences = Absences()
        self._fault = ''
        """What went wrong in its life cycle, until it is configured again."""
        self._broken = ''
        """Why this process can serve no more."""
        # Named by the server, as the manager knows it, whatever the node is called.
        status = qos.private(self._name, qos.STATUS)
        self._status = self.create_publisher(ServerStatus, status, qos.LATCHED_QOS)
        self._diagnostics = self.create_publisher(DiagnosticArray, qos.DIAGNOSTICS,
                                                  qos.DIAGNOSTICS_QOS)
        self.create_subscription(ServerStatus, status, self._on_own_status, qos.VOLATILE_QOS)
        refuse_invalid(self, lambda: self._incarnation.speaks)
        # The heart beats also where simulated time stands still or jumps.
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._period = 1.0 / rate
        self._listening = self.create_timer(listen_time, self._begin, clock=self._steady)
        if not listen_time:
            self._begin()
            self._start()

    def _begin(self) -> None:
        """Speak as the server of this name; before, robots and the manager know another one."""
        self._listening.cancel()
        self._incarnation.speaks = True
        self.create_service(AssignRobots, qos.private(self._name, qos.ASSIGN), self._on_assign)
        self._changes = ModelChanges(self, self._name, self._config, self._drain_timeout,
                                     lambda: self._serving)
        self._heart = Heart(self, qos.private(self._name, qos.HEARTBEAT), self._lease,
                            lambda: self._state != ServerStatus.ACTIVE, self._hang_time)
        self.create_timer(self._lease.period, self._on_lease_timer, clock=self._steady)
        self.create_timer(self._period, self._on_status_timer, clock=self._steady)
        self.create_timer(1.0, self._on_diagnostics_timer, clock=self._steady)
        self.create_timer(GAP / 2, self._check, clock=self._steady)
        self._publish_status()
        self._starting = self.create_timer(HEAR_TIME, self._start, clock=self._steady)

    def _start(self) -> None:
        self._starting.cancel()
        if self._autostart and (self._state == ServerStatus.INACTIVE
                                or self.trigger_configure() == SUCCESS):
            self.trigger_activate()

    @said('configure')
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the models, make the engine ready, and measure capacities that are not known."""
        self._fault = ''
        self._enter(ServerStatus.CONFIGURING)
        # torch takes seconds to load; until then the node can be seen, as configuring.
        from robion_ros.engine.device import free_memory
        from robion_ros.nodes.serving import Serving
        try:
            self._serving = Serving(self, self._factory, self._name, self._memories, self._lease,
                                    self._hang_time, self._beside)
        except InterruptedError as error:
            self.get_logger().info(str(error))
        except (Exception, SystemExit) as error:  # Of a model: the node stays unconfigured.
            self.complain(f'cannot configure: {type(error).__name__}: {error}')
        if not self._serving:
            free_memory()  # What was loaded until then.
        self._enter(ServerStatus.INACTIVE if self._serving else ServerStatus.UNCONFIGURED)
        return SUCCESS if self._serving else FAILURE

    @said('activate')
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Serve the robots that the manager assigns from now on."""
        result = super().on_activate(state)
        if self._serving:
            self._serving.engine.resume()
        if self._heart:
            self._heart.touch()
        self._enter(ServerStatus.ACTIVE)
        return result

    @said('deactivate')
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Let the robots go and answer what they had asked."""
        self._enter(ServerStatus.INACTIVE)  # Before it drains: nobody need wait for that.
        if self._serving and not self._serving.drain(self._drain_timeout):
            self.get_logger().warning(f'requests were still running after {self._drain_timeout} s')
        self._publish_status()
        return super().on_deactivate(state)

    @said('clean up')
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Free the models and the engine."""
        self._enter(ServerStatus.UNCONFIGURED)  # Before it frees: nobody need wait for that.
        self._free()
        return FAILURE if self._broken else SUCCESS

    on_shutdown = on_error = on_cleanup  # From whatever state.

    def close(self) -> None:
        """Free what is held when the process ends."""
        if not self.exit_code:  # Or another server of this name goes on.
            self._enter(ServerStatus.UNCONFIGURED)  # Robots go elsewhere at once.
        if self._heart:
            self._heart.close()
        self._free()

    def serves_robots(self) -> bool:
        """Return whether robots are answered now."""
        return self._serving is not None and bool(self._serving.roster.active)

    def complain(self, fault: str) -> None:
        """Log a fault, and show it until the node is configured again."""
        self._fault = fault
        self.get_logger().error(fault)

    def _check(self) -> None:
        """End this process where it can serve no more, and say why: a new one is started."""
        assert self._heart and self._changes  # From the begin on.
        if why := (self._broken or self._heart.fault or (
                self._serving.watch.look(self._changes.busy) if self._serving else '')):
            self.complain(f'{why}; the process must be restarted')
            self._on_diagnostics_timer()
            raise RuntimeError(self._fault)

    def _free(self) -> None:
        """Let go of all that was configured."""
        if self._serving:
            serving, self._serving = self._serving, None
            if self._changes:
                self._changes.abandon()
            from robion_ros.engine.device import free_memory
            if not serving.close():
                self._broken = 'the engine hangs, and keeps what it has on its device'
                self.complain(self._broken)
                self.exit_code = self.exit_code or 1
                return
            del serving
            free_memory()

    def _on_assign(self, request: AssignRobots.Request,
                   response: AssignRobots.Response) -> AssignRobots.Response:
        if self._serving is None or self._state != ServerStatus.ACTIVE:
            return AssignRobots.Response(
                message=f'{self._name} is not active; configure and activate it first',
                error_code=AssignRobots.Response.NOT_ACTIVE)
        self._expire()  # Here as well: a call may be handled before the timer.
        try:
            return self._serving.roster.apply(request)
        except Refusal as error:
            return AssignRobots.Response(message=str(error), error_code=error.code)

    def _on_own_status(self, status: ServerStatus) -> None:
        if self._incarnation.gives_way(status.incarnation) and not STOPPED.is_set():
            self.get_logger().fatal(
                f'server {self._name!r} runs already, here or on another machine of this ROS '
                'domain; stop that one first, or give this one another name')
            self.exit_code = 2
            STOPPED.set()

    def _on_lease_timer(self) -> None:
        if self._heart:
            self._heart.touch()
        self._expire()

    def _expire(self) -> None:
        """Let every robot go if they may be served elsewhere."""
        if self._serving and self._serving.expire():
            self.get_logger().warning(
                f'held up for {self._lease.gap:.1f} s: robots may be served elsewhere and were '
                'let go; the manager assigns robots anew')
            self._publish_status()

    def _on_status_timer(self) -> None:
        if self._changes:
            self._changes.settle()
        self._publish_status()
        if self._serving:
            self._serving.roster.settle()
        self._absences.forget(self._memories, lambda memory: memory.handover.last_request,
                              self._serving.roster.robots if self._serving else ())

    def _on_diagnostics_timer(self) -> None:
        problems = {'': self._fault} if self._fault else {}
        if not self.get_clock().now().nanoseconds:
            problems[''] = 'time is 0: use_sim_time is set, but nobody publishes /clock'
            self.get_logger().warning(problems[''], throttle_duration_sec=SAY_AGAIN)
        if self._serving and self._state == ServerStatus.ACTIVE:
            problems |= explain_silence(self, self._serving.roster.robots, self._serving.configs)
        self._diagnostics.publish(diagnostics(self._make_status(), problems))

    def _enter(self, state: int) -> None:
        self._state = state
        self._publish_status()

    def _publish_status(self) -> None:
        if self._incarnation.speaks:
            self._status.publish(self._make_status())

    def _make_status(self) -> ServerStatus:
        return server_status(
            self._serving, header=Header(stamp=self.get_clock().now().to_msg()),
            server=self._name, incarnation=self._incarnation.number, term=self._lease.term,
            state=self._state, device=self._factory.servers[self._name].device,
            server_timeout=to_duration(self._factory.manager.server_timeout))


def main(args: list[str] | None = None) -> int:
    """Run a server node."""
    # The engine's thread must get the interpreter soon after its wait ends, beside an executor
    # that handles hundreds of messages a second; the default of 5 ms adds that to each lockstep.
    sys.setswitchinterval(0.0005)
    # Before torch is loaded: preprocessing works on small tensors, in threads beside the engine
    # and perhaps other servers; OpenMP's default of a thread per core makes it many times slower.
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    return run(ServerNode, lambda node: one_thread(node.serves_robots), __doc__ or '',
               PARAMETERS, args)


if __name__ == '__main__':
    raise SystemExit(main())
