# SPDX-License-Identifier: Apache-2.0
"""
What serves, from configure to cleanup: models, the engine, the roster and three threads.

A request crosses it in this order: draft (executor) -> intake: pictures decoded, engine's submit
-> engine -> outbox: chunk published, outcome counted. Models come and go on a third thread. Knows
neither the node's life cycle nor its services.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Event
from time import monotonic
from typing import NamedTuple

from rclpy.node import Node

from robion_ros.config import FactoryConfig, ModelConfig
from robion_ros.core import ActionChunk, Dropped, DropReason, Observation, Outcome, Request
from robion_ros.engine.answers import describe
from robion_ros.engine.changes import add_model, remove_model
from robion_ros.engine.device import freeze_memory
from robion_ros.engine.engine import start_engine
from robion_ros.engine.memory import Outlines
from robion_ros.models.memory import weight_bytes
from robion_ros.models.protocol import ModelSpec
from robion_ros.nodes.bridge import find_cv_bridge
from robion_ros.nodes.convert import chunk_message, stamp_ns, trajectory_message
from robion_ros.nodes.engine_watch import EngineWatch
from robion_ros.nodes.formation import Draft
from robion_ros.nodes.images import to_rgb
from robion_ros.nodes.intake import Intake
from robion_ros.nodes.lease import Lease
from robion_ros.nodes.loading import Loading
from robion_ros.nodes.refused import Refused
from robion_ros.nodes.roster import Roster
from robion_ros.nodes.served_robot import Hooks, Memory, ServedRobot
from robion_ros.nodes.spin import STOPPED
from robion_ros.nodes.worker import Worker

EXPIRED = 'the server was held up, and the robot may be served elsewhere'


class Loaded(NamedTuple):
    """A model that the engine serves."""

    config: ModelConfig
    spec: ModelSpec
    weights: int
    """Their size, bytes."""
    capacity: int
    """Most robots of it that the device sustains."""


class Serving:
    """What exists from configure to cleanup: loaded models, the engine and three threads."""

    def __init__(self, node: Node, factory: FactoryConfig, name: str,
                 memories: dict[str, Memory], lease: Lease, hang_time: float,
                 beside: Iterable[str] = ()) -> None:
        """
        Load the models of a server; beside are those with the same device on this machine.

        hang_time is that of EngineWatch.
        """
        self._node = node
        self._lease = lease
        node.get_logger().info(find_cv_bridge()[1])  # Now, or the first image would wait for it.
        self._name, self._server = name, factory.servers[name]
        self.configs = {model: factory.models[model] for model in self._server.models}
        """Of the models that are held, also while they are let go."""
        self._beside = tuple(beside)
        self._outlines: Outlines = {}
        """Of what is held: its checkpoints may be gone by now."""
        self._closing = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix='models')
        """Where models are loaded and let go."""
        try:
            found = self.thread.submit(self._loading(factory).run).result()
            start = monotonic()
            self._device, self._ready = found.device, found.ready
            self.engine = start_engine(found.ready, found.device, self._server,
                                       self.conclude)
        except BaseException:
            self.thread.shutdown()
            raise
        freeze_memory()  # Not what is loaded later: that would stop who is served now.
        self.watch = EngineWatch(self.engine, hang_time)
        node.get_logger().info(f'engine ready in {monotonic() - start:.1f} s')
        self._specs = {model: loaded.spec for model, loaded in found.models.items()}
        self._capacities = dict(found.capacities)
        self._outbox = Worker('outbox', self._complain)
        self._intake = Intake(self._submit, self._supersede, self._complain)
        self.roster = Roster(node, self.configs, self._longest(),
                             Hooks(self._on_draft, self._on_new_prompt), self._assign, memories,
                             lease)

    def conclude(self, outcome: Outcome) -> None:
        """Take an outcome over from the engine's thread."""
        self._outbox.put(partial(self._deliver, outcome))

    def drain(self, timeout: float) -> bool:
        """Let every robot go and answer what was accepted; False if timeout s were short."""
        self.roster.release_all()
        self._assign()  # Their models may be let go while nobody is served.
        empty = Event()
        self._intake.put_job(empty.set)
        deadline = monotonic() + timeout
        done = empty.wait(timeout) and self.engine.drain(max(0.0, deadline - monotonic()))
        published = Event()
        self._outbox.put(published.set)
        return published.wait(max(0.1, deadline - monotonic())) and done

    def close(self) -> bool:
        """
        Free the engine and end the workers; every accepted request ends before.

        Return False if the engine hangs: then what it has on its device stays.
        """
        self._closing = True
        self._intake.close()
        ended = False
        try:
            ended = self.engine.stop(self.watch.left)
        finally:  # Also where the device cannot free anything.
            self.thread.shutdown(wait=ended)
            self._outbox.close()
            self.roster.close()
        return ended

    @property
    def capacities(self) -> dict[str, int]:
        """The models that robots may be assigned to, and how many robots each sustains."""
        return {model: self._capacities[model] for model in self.roster.models}

    def load(self, name: str, factory: FactoryConfig) -> Loaded:
        """
        Load one more model, which a factory describes, into the engine; on thread.

        Changes nothing where it cannot be, and raises what the model or the device raises.
        """
        held = factory.servers.get(self._name, self._server)
        server = replace(self._server, models=(*self.configs, name), capacities={
            model: robots for model, robots in held.capacities.items() if model == name})
        grown = replace(factory, models={**factory.models, **self.configs},
                        servers={**factory.servers, self._name: server})
        self._outlines = {key: one for key, one in self._outlines.items()
                          if key[0] in self.configs}
        model, capacity = self._loading(grown).load_more(self._device, name)
        add_model(self.engine, self._ready, name, model)
        return Loaded(factory.models[name], model.spec, weight_bytes(model), capacity)

    def take(self, name: str, loaded: Loaded) -> None:
        """Let robots be assigned to a model that was loaded."""
        self.configs[name], self._specs[name] = loaded.config, loaded.spec
        self._capacities[name] = loaded.capacity
        self.roster.chunk_length = self._longest()
        self.roster.offer(name, loaded.config)

    def unload(self, name: str, timeout: float) -> bool:
        """
        Free a model that no robots can be assigned to any more; on thread.

        False, and nothing, if what it accepted has not ended within timeout s.
        """
        submitted, published = Event(), Event()
        self._intake.put_job(submitted.set)
        ended = submitted.wait(timeout) and remove_model(self.engine, self._ready, name, timeout)
        if ended:
            self._outbox.put(published.set)
            published.wait(timeout)  # Its last chunks are published by what is forgotten next.
        return ended

    def forget(self, name: str) -> None:
        """Forget a model that was freed."""
        del self.configs[name], self._specs[name], self._capacities[name]
        self.roster.chunk_length = self._longest()

    def _loading(self, factory: FactoryConfig) -> Loading:
        logger = self._node.get_logger()
        return Loading(factory, self._name, self._beside, logger.info, logger.warning,
                       self._stop_early, self._outlines)

    def _stop_early(self) -> None:
        """Raise InterruptedError if what is loaded will not be served."""
        if self._closing or STOPPED.is_set():
            raise InterruptedError('shut down while loading')

    def _longest(self) -> float:
        """Return the length of the longest chunk of any model, s."""
        return max((spec.horizon * spec.step_duration for spec in self._specs.values()),
                   default=1.0)

    def expire(self) -> bool:
        """Let every robot go, and what it asked, if the lease was lost; return whether it was."""
        asking = list(self.roster.robots)
        expired = self.roster.expire()
        for robot in asking if expired else ():
            self._intake.put_job(partial(self.engine.cancel, robot, EXPIRED))
        return expired

    def _on_draft(self, draft: Draft) -> None:
        # What is formed after the term has ended, and before the robots are let go, is younger
        # than the new term: only here is it known to be of the old one.
        if self._lease.term == self.roster.term:
            self._intake.put(draft)
        else:
            self._drop(draft, DropReason.CANCELLED, EXPIRED)

    def _on_new_prompt(self, robot: str) -> None:
        """Withdraw what would run under the old instruction."""
        self._intake.put_job(partial(self.engine.cancel, robot, 'the instruction changed'), robot)

    def _assign(self) -> None:
        """Give the roster to the engine, after the requests that were formed before."""
        self._intake.put_job(partial(self.engine.assign, self.roster.epoch, self.roster.active))

    def _submit(self, draft: Draft) -> None:
        try:
            request = make_request(draft, self.configs[draft.model])
        except Refused as error:
            self._drop(draft, DropReason.FAILED, str(error))
        except Exception as error:  # Whatever a decoder raises: the request has to end.
            self._drop(draft, DropReason.FAILED, describe(error))
        else:
            self.engine.submit(request)

    def _supersede(self, draft: Draft) -> None:
        self._drop(draft, DropReason.SUPERSEDED, 'a newer observation came')

    def _drop(self, draft: Draft, reason: DropReason, detail: str) -> None:
        """End a request whose pictures were not decoded."""
        blank = Observation((), draft.state, draft.prompt, 0)
        request = Request(draft.robot, draft.number, draft.model, blank, draft.arrived,
                          draft.arrived)
        self.conclude(Dropped(request, reason, detail))

    def _complain(self, error: BaseException) -> None:
        self._node.get_logger().error(describe(error))

    def _deliver(self, outcome: Outcome) -> None:
        robot = self.roster.robots[outcome.request.robot]
        if isinstance(outcome, ActionChunk) and outcome.request.number < robot.newest:
            # Another model was quicker with a newer observation: the robot must not go back.
            outcome = Dropped(outcome.request, DropReason.SUPERSEDED, 'a newer chunk was sent')
        if isinstance(outcome, ActionChunk) and not self._lease.covers(outcome.request.arrived):
            outcome = Dropped(outcome.request, DropReason.CANCELLED, EXPIRED)
        if isinstance(outcome, ActionChunk):
            robot.newest = outcome.request.number
            try:
                self._publish(robot, outcome)
            except Exception as error:  # A chunk that cannot be sent is no answer.
                outcome = Dropped(outcome.request, DropReason.FAILED,
                                  f'model {outcome.request.model}: {describe(error)}')
        robot.end(outcome)

    def _publish(self, robot: ServedRobot, chunk: ActionChunk) -> None:
        config = self.configs[chunk.request.model]
        step = self._specs[chunk.request.model].step_duration
        now = self._node.get_clock().now().nanoseconds
        assert robot.outputs, 'there before any request'
        robot.outputs.chunk.publish(chunk_message(chunk, config, step, now))
        if robot.outputs.trajectory and config.joint_trajectory:
            robot.outputs.trajectory.publish(trajectory_message(chunk, config, step))


def make_request(draft: Draft, config: ModelConfig) -> Request:
    """Decode a draft's pictures; raise Refused, naming the camera, if one cannot be read."""
    images = []
    for (name, camera), frame in zip(config.cameras.items(), draft.frames, strict=True):
        try:
            images.append(to_rgb(frame.message, camera.color_order))
        except Refused as error:
            raise Refused(f'{name}: {error}') from error
    stamp = min(stamp_ns(frame.message.header) for frame in draft.frames)
    observation = Observation(tuple(images), draft.state, draft.prompt, stamp)
    return Request(draft.robot, draft.number, draft.model, observation, draft.arrived,
                   draft.arrived + config.slo)
