# SPDX-License-Identifier: Apache-2.0
"""
One robot at one server: its topics, the forming of its requests, and what became of them.

What is asked of a robot is so at once, but for its topics: to open or close one takes
milliseconds, so settle() does that when others have been heard. Everything here runs on the
executor's thread, but for end(), which belongs to the thread that publishes. Knows neither the
engine nor other robots.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image, JointState
from std_msgs.msg import String

from robion_ros.config import ModelConfig
from robion_ros.core import ActionChunk, DropReason, Outcome
from robion_ros.msg import RobotStatus
from robion_ros.nodes.convert import prompt_from, state_from
from robion_ros.nodes.formation import Draft, Formation, Frame, Handover
from robion_ros.nodes.images import inspect
from robion_ros.nodes.qos import JOINT_STATES, PROMPT
from robion_ros.nodes.refused import Refused
from robion_ros.nodes.robot_link import Inputs, Outputs

SAY_AGAIN = 5.0
"""Least time between two log lines about one robot, s."""


@dataclass
class Counters:
    """What became of a robot's requests. Each field is written by one thread only."""

    requests: int = 0
    refused: int = 0
    answered: int = 0
    late: int = 0
    superseded: int = 0
    shed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def outstanding(self) -> int:
        """Requests that have not ended."""
        return self.requests - (self.answered + self.superseded + self.shed + self.failed
                                + self.cancelled)


@dataclass
class Memory:
    """What a server keeps of a robot until its process ends, also while it is elsewhere."""

    counters: Counters = field(default_factory=Counters)
    handover: Handover = field(default_factory=Handover)
    """
    What the robot left with; its instruction as old as can be, since whoever else knows one knows
    what was said meanwhile, by whatever clock.
    """


@dataclass(frozen=True)
class Hooks:
    """What a robot calls on its server."""

    on_draft: Callable[[Draft], None]
    on_new_prompt: Callable[[str], None]
    """Called with the robot's name when its instruction has changed."""


class ServedRobot:
    """A robot that this server listens to, answers, or is letting go."""

    def __init__(self, node: Node, name: str, make_outputs: Callable[[], Outputs],
                 memory: Memory, hooks: Hooks) -> None:
        self.name = name
        self.outputs: Outputs | None = None
        """There before the inputs, so before anything is asked."""
        self.counters = memory.counters
        self.formation: Formation | None = None
        self.last_error = ''
        self.newest = 0
        """Number of the newest request that was answered; of the thread that publishes."""
        self._answered = -inf
        """When that was, s of time.monotonic()."""
        self.since = monotonic()
        """When the server was told to listen."""
        self.refusals: dict[str, tuple[float, str]] = {}
        """When a message of an input was refused last, s of time.monotonic(), and why."""
        self._make_outputs = make_outputs
        self._memory = memory
        self._left = memory.handover
        self._node = node
        self._hooks = hooks
        self._inputs: Inputs | None = None
        self._config: ModelConfig | None = None
        self._said: dict[str, float] = {}
        self._bad_prompt = 0
        """Publish time of the last prompt that was refused, ns."""

    @property
    def state(self) -> int:
        """One of RobotStatus' constants."""
        if self.formation is None:
            return int(RobotStatus.LEAVING)
        return int(RobotStatus.ACTIVE if self.formation.active else RobotStatus.STANDBY)

    @property
    def ready(self) -> bool:
        """Whether the robot is heard and hears."""
        return bool(self.formation and self.formation.complete
                    and self.outputs and self.outputs.heard)

    @property
    def handover(self) -> Handover:
        """Where the robot's next server goes on."""
        return self.formation.handover if self.formation else self._left

    def listen(self, model: str, config: ModelConfig) -> None:
        """Form the robot's requests for this model from now on, once activated."""
        old = self.formation
        if old is not None and old.model == model:
            return
        self.formation = Formation(self.name, model, config, self._memory.handover, old)
        if config.joint_trajectory and self.outputs:
            self.outputs.add_trajectory()  # Now, as requests may be formed already.
        if self._inputs and self._inputs.cameras != config.cameras:
            self._inputs.mute()
        if not self._inputs or not self._inputs.hears:
            self.since = monotonic()
            self.refusals.clear()
        self._config = config

    def settle(self) -> bool:
        """Close a topic of before, or open one of now; return whether there was one."""
        if self._inputs and not self._inputs.hears:
            if self._inputs.close_next():
                return True
            self._inputs = None
        if not self.formation or not self._config:
            return False
        if not self.outputs:
            self.outputs = self._make_outputs()
            if self._config.joint_trajectory:
                self.outputs.add_trajectory()
            return True
        if not self._inputs:
            self._inputs = Inputs(self._node, self.name, self._config.cameras, self._on_frame,
                                  self._on_state, self._on_prompt)
        return self._inputs.open_next()

    def activate(self, handover: Handover) -> None:
        """Answer the robot from the next call of form on."""
        if self.formation is not None:
            self.formation.activate(handover, monotonic())

    def form(self) -> None:
        """Form the next request if one can be formed."""
        draft = self.formation.form(monotonic()) if self.formation else None
        if draft is not None:
            self.counters.requests += 1
            self._hooks.on_draft(draft)

    def hold(self) -> Handover:
        """Listen, but answer no more; return where the next server goes on."""
        assert self.formation is not None
        self.formation.active = False
        return self.formation.handover

    def leave(self) -> Handover:
        """Hear nothing any more; return where the next server goes on."""
        if self.formation is not None:
            self._left = left = self.formation.handover
            self._memory.handover = replace(left, prompt_stamp=min(left.prompt_stamp, 1))
            self.formation = None
            if self._inputs:
                self._inputs.mute()
        return self.handover

    def has_left(self, length: float) -> bool:
        """
        Return whether nothing more comes of the robot here.

        length, s, is that of a chunk: so long it may still be on its way, and does not arrive
        where its publisher is gone.
        """
        return (self.formation is None and not self.counters.outstanding
                and monotonic() - self._answered >= length)

    def close(self) -> None:
        """Let go of every topic."""
        self.leave()
        if self._inputs:
            self._inputs.close()
        if self.outputs:
            self.outputs.close()

    def end(self, outcome: Outcome) -> None:
        """Count how a request ended; call after its chunk was published."""
        counters = self.counters
        if isinstance(outcome, ActionChunk):
            self._answered = monotonic()
            counters.late += not outcome.deadline_met
            counters.answered += 1
            return
        reason = outcome.reason.value
        setattr(counters, reason, getattr(counters, reason) + 1)
        text = f'request {outcome.request.number} {reason}: {outcome.detail}'
        if outcome.reason is DropReason.FAILED:
            self.last_error = text
        self.say(reason, text)

    def say(self, kind: str, text: str) -> None:
        """Log something about the robot, of each kind only every few seconds."""
        now = monotonic()
        if now - self._said.get(kind, -SAY_AGAIN) >= SAY_AGAIN:
            self._said[kind] = now
            self._node.get_logger().warning(f'{self.name}: {text}')

    def _on_frame(self, camera: str, message: Image | CompressedImage,
                  published_ns: int) -> None:
        try:
            warnings = inspect(message)
        except Refused as error:
            self._refuse(camera, error)
            return
        if warnings:
            self.say(f'{camera} warning', f'{camera}: {"; ".join(warnings)}')
        if self.formation is not None:
            self.formation.add_frame(camera, Frame(message, published_ns, monotonic()))
            self.form()

    def _on_state(self, message: JointState, published_ns: int) -> None:
        if self.formation is None or self._config is None:
            return
        try:
            state = state_from(message, self._config.joints)
        except Refused as error:
            self._refuse(JOINT_STATES, error)
            return
        self.formation.add_state(state, monotonic())
        self.form()

    def _on_prompt(self, live: bool, message: String, published_ns: int) -> None:
        try:
            prompt = prompt_from(message)
        except Refused as error:
            if published_ns != self._bad_prompt:  # It may come twice.
                self._bad_prompt = published_ns
                self._refuse(PROMPT, error)
            return
        if self.formation is not None and self.formation.add_prompt(prompt, published_ns, live):
            self._hooks.on_new_prompt(self.name)
            self.form()

    def _refuse(self, topic: str, error: Refused) -> None:
        self.counters.refused += 1
        self.refusals[topic] = monotonic(), str(error)
        self.last_error = f'{topic}: {error}'
        self.say(topic, self.last_error)


def unheard(robots: Mapping[str, ServedRobot],
            now: float) -> dict[str, tuple[str, dict[str, str]]]:
    """
    Return model and silent inputs of each robot that was listened to in vain for a while.

    An input's value says why its messages are refused, or since when there are none; '' if it
    was never heard.
    """
    since = now - SAY_AGAIN
    silent = {}
    for name, robot in robots.items():
        if robot.formation and robot.since <= since:
            known = {topic: f'no message for {now - heard:.0f} s' if heard > -inf else ''
                     for topic, heard in robot.formation.missing(since).items()}
            known |= {topic: why for topic, (when, why) in robot.refusals.items()
                      if topic in known and when >= since}
            if known:
                silent[name] = robot.formation.model, known
    return silent
