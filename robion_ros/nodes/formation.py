# SPDX-License-Identifier: Apache-2.0
"""
When the messages of one robot make a request.

A request is formed when every camera has a frame that no request has used, a state and a prompt
are known, nothing is older than the model's maximum age, and the model's rate allows it. Only
references are kept: pictures are decoded later, in another thread. Knows no node and no queue;
called from one thread.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from robion_ros.config import ModelConfig

WATERMARK_LIFE = 1.0
"""How long a hand-over's watermark is compared with frames, s; later a frame below it can only
mean that the publisher's clock was set back."""


@dataclass(frozen=True, eq=False)
class Frame:
    """The newest message of a camera."""

    message: Any
    """sensor_msgs Image or CompressedImage."""
    published_ns: int
    """Publish time by the publisher's clock; the same at every subscriber."""
    received: float
    """s of time.monotonic()."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A request before its pictures are decoded."""

    robot: str
    model: str
    number: int
    frames: tuple[Frame, ...]
    """In the order of the model's cameras."""
    state: np.ndarray
    """float32 [S]."""
    prompt: str
    arrived: float
    """s of time.monotonic()."""


@dataclass(frozen=True)
class Handover:
    """What the next server of a robot must know; all zero and empty for a robot that is new."""

    last_request: int = 0
    watermark: int = 0
    """Publish time of the newest image used, ns of the publisher's clock."""
    prompt: str = ''
    prompt_stamp: int = 0
    """Publish time of the prompt, ns of the publisher's clock; 0: nobody published one."""

    def merge(self, other: 'Handover') -> 'Handover':
        """
        Return what both know together: the greatest numbers, and the prompt published last.

        Where nobody published one, the prompts are the defaults of models, and mine stays.
        """
        newer = other if other.prompt and (not self.prompt or
                                           other.prompt_stamp > self.prompt_stamp) else self
        return Handover(max(self.last_request, other.last_request),
                        max(self.watermark, other.watermark), newer.prompt, newer.prompt_stamp)


class Formation:
    """
    The newest inputs of one robot under one model.

    It goes on from known, and with previous, the robot's formation under the model it had, also
    with whatever of that fits the new model.
    """

    def __init__(self, robot: str, model: str, config: ModelConfig,
                 known: Handover = Handover(), previous: 'Formation | None' = None) -> None:
        self.robot = robot
        self.model = model
        self.handover = Handover(prompt=config.prompt).merge(known)
        self.active = False
        """Whether requests may be formed."""
        self._config = config
        self._frames: dict[str, Frame] = {}
        self._heard: dict[str, float] = {}
        self._state: tuple[np.ndarray, float] | None = None
        self._watermark, self._watermark_until = 0, 0.0
        self._next_due = 0.0
        if previous is not None:
            self._adopt(previous)

    @property
    def complete(self) -> bool:
        """Whether every camera has been heard at least once."""
        return len(self._heard) == len(self._config.cameras)

    def missing(self, since: float) -> dict[str, float]:
        """
        Return the inputs that have not been heard since then, and when they were heard last.

        Both in s of time.monotonic(); -inf is never.
        """
        heard = {camera: self._heard.get(camera, -inf) for camera in self._config.cameras}
        heard['joint_states'] = self._state[1] if self._state else -inf
        heard['prompt'] = inf if self.handover.prompt else -inf  # Said once, it stays.
        return {name: when for name, when in heard.items() if when < since}

    def activate(self, handover: Handover, now: float) -> None:
        """Take over from another server: go on where it stopped."""
        self.handover = self.handover.merge(handover)
        if handover.watermark:
            self._watermark, self._watermark_until = handover.watermark, now + WATERMARK_LIFE
            self._frames = {camera: frame for camera, frame in self._frames.items()
                            if frame.published_ns > handover.watermark}
        self.active = True

    def add_frame(self, camera: str, frame: Frame) -> None:
        """Keep a camera's newest frame."""
        self._heard[camera] = frame.received
        # What was used here is not compared: the clocks of two cameras need not agree.
        if frame.received >= self._watermark_until or frame.published_ns > self._watermark:
            self._frames[camera] = frame

    def add_state(self, state: np.ndarray, now: float) -> None:
        """Keep the newest joint state."""
        self._state = state, now

    def add_prompt(self, prompt: str, published_ns: int, live: bool = False) -> bool:
        """
        Keep a prompt unless a later one is known; return whether it changed.

        A live one is the latest, whatever its publisher's clock says; one that was published
        before, and latched, is as old as its stamp.
        """
        old = self.handover
        if not live and published_ns < old.prompt_stamp:
            return False
        self.handover = replace(old, prompt=prompt, prompt_stamp=published_ns)
        return prompt != old.prompt

    def form(self, now: float) -> Draft | None:
        """Return the next request, and consume its frames, if one can be formed."""
        if not self.active or len(self._frames) < len(self._config.cameras):
            return None  # Mostly so: a robot's joint states come many times between two frames.
        if self._is_early(now):
            self._frames = {}  # Held, it would be old when its time comes, and so all after it.
            return None
        if self._is_torn(now):
            return None
        oldest = now - self._config.max_age
        self._frames = {camera: frame for camera, frame in self._frames.items()
                        if frame.received >= oldest}
        if (len(self._frames) < len(self._config.cameras)
                or self._state is None or self._state[1] < oldest
                or not self.handover.prompt):
            return None
        self._next_due = max(now, self._next_due) + 1.0 / self._config.rate
        frames = tuple(self._frames[camera] for camera in self._config.cameras)
        self._frames = {}
        old = self.handover
        watermark = max(old.watermark, *(frame.published_ns for frame in frames))
        self.handover = replace(old, last_request=old.last_request + 1, watermark=watermark)
        return Draft(self.robot, self.model, old.last_request + 1, frames, self._state[0],
                     old.prompt, now)

    def _adopt(self, old: 'Formation') -> None:
        self.active = old.active
        self.handover = self.handover.merge(old.handover)
        self._watermark, self._watermark_until = old._watermark, old._watermark_until
        self._next_due = old._next_due
        if old._config.cameras == self._config.cameras:
            self._frames, self._heard = dict(old._frames), dict(old._heard)
        if old._config.joints == self._config.joints:
            self._state = old._state

    def _is_early(self, now: float) -> bool:
        """
        Return whether the model's rate forbids a request; a robot may be half a period early.

        Without that slack one that publishes at just this rate would lose every observation that
        jitter brings a little too soon.
        """
        return now < self._next_due - 0.5 / self._config.rate

    def _is_torn(self, now: float) -> bool:
        """
        Return whether a camera lacks a frame that is due any moment, as its last one was lost.

        With the one before instead, each request would mix two observations from then on.
        """
        seen = [frame.received for frame in self._frames.values()]
        half = 0.5 / self._config.rate
        return max(seen) - min(seen) > half and now - max(seen) < half / 2
