# SPDX-License-Identifier: Apache-2.0
"""
What serves, from configure to cleanup: loaded models, the engine, the roster and two threads.

A request crosses it in this order: draft (executor) -> intake: pictures decoded, engine's submit
-> engine -> outbox: chunk published, outcome counted. Knows neither the node's life cycle nor
its services.
"""

from collections.abc import Iterable
from functools import partial
from threading import Event
from time import monotonic

from rclpy.node import Node

from robion_ros.config import FactoryConfig, ModelConfig
from robion_ros.core import ActionChunk, Dropped, DropReason, Observation, Outcome, Request
from robion_ros.engine.answers import describe
from robion_ros.engine.engine import start_engine
from robion_ros.nodes.bridge import find_cv_bridge
from robion_ros.nodes.convert import chunk_message, stamp_ns, trajectory_message
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


class Serving:
    """What exists from configure to cleanup: loaded models, the engine and its two threads."""

    def __init__(self, node: Node, factory: FactoryConfig, name: str,
                 memories: dict[str, Memory], lease: Lease, beside: Iterable[str] = ()) -> None:
        """Load the models of a server; beside are those with the same device on this machine."""
        self._node = node
        self._lease = lease
        node.get_logger().info(find_cv_bridge()[1])  # Now, or the first image would wait for it.
        server = factory.servers[name]
        self.configs = {model: factory.models[model] for model in server.models}
        start = monotonic()
        logger = node.get_logger()
        loaded = Loading(factory, name, beside, logger.info, logger.warning, stop_early).run()
        self.models, self.capacities = loaded.models, loaded.capacities
        self.engine = start_engine(loaded.ready, loaded.device, server, self.conclude)
        logger.info(f'engine ready in {monotonic() - start:.1f} s')
        self._outbox = Worker('outbox', self._complain)
        self._intake = Intake(self._submit, self._supersede, self._complain)
        length = max(model.spec.horizon * model.spec.step_duration
                     for model in self.models.values())
        self.roster = Roster(node, self.configs, length,
                             Hooks(self._on_draft, self._on_new_prompt), self._assign, memories,
                             lease)

    def conclude(self, outcome: Outcome) -> None:
        """Take an outcome over from the engine's thread."""
        self._outbox.put(partial(self._deliver, outcome))

    def drain(self, timeout: float) -> bool:
        """Let every robot go and answer what was accepted; False if timeout s were short."""
        self.roster.release_all()
        empty = Event()
        self._intake.put_job(empty.set)
        deadline = monotonic() + timeout
        done = empty.wait(timeout) and self.engine.drain(max(0.0, deadline - monotonic()))
        published = Event()
        self._outbox.put(published.set)
        return published.wait(max(0.1, deadline - monotonic())) and done

    def close(self) -> None:
        """Free the engine and end the workers; every accepted request ends before."""
        self._intake.close()
        self.engine.stop()
        self._outbox.close()
        self.roster.close()

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
        self._intake.put_job(partial(self.engine.cancel, robot, 'the instruction changed'))

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

    def _complain(self, error: Exception) -> None:
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
        step = self.models[chunk.request.model].spec.step_duration
        now = self._node.get_clock().now().nanoseconds
        robot.outputs.chunk.publish(chunk_message(chunk, config, step, now))
        if robot.outputs.trajectory and config.joint_trajectory:
            robot.outputs.trajectory.publish(trajectory_message(chunk, config, step))


def stop_early() -> None:
    """Raise InterruptedError if the process shall end."""
    if STOPPED.is_set():
        raise InterruptedError('shut down while loading')


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
