# SPDX-License-Identifier: Apache-2.0
"""
Turn joint states and prompts into what a request needs, and chunks into messages.

Pure functions on message objects: they know no node, topic or clock and keep nothing. Images
are images.py's.
"""

from array import array
from difflib import get_close_matches
from functools import lru_cache
import math
from typing import Any
import unicodedata

from builtin_interfaces.msg import Duration, Time
import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from robion_ros.config import ModelConfig
from robion_ros.core import ActionChunk
from robion_ros.msg import ActionChunk as ActionChunkMessage
from robion_ros.nodes.refused import Refused

MAX_PROMPT = 4096
"""Longest instruction, characters."""
BLANK = frozenset({'Cc', 'Cf', 'Zs', 'Zl', 'Zp'})
"""Unicode categories of characters that show nothing."""
MAX_NAMES, MAX_NAME = 100, 64
"""Most names, and characters of one, that a refusal looks at or repeats."""
SECOND = 1_000_000_000
MAX_SECONDS = 2**31 - 1
"""Largest value of Time.sec and Duration.sec."""


def state_from(message: JointState, joints: tuple[str, ...]) -> np.ndarray:
    """
    Return the positions of joints as float32 [S], matched by name; raise Refused.

    Joints that the model does not use are passed over, since robots publish grippers, wheels
    and arms in one message; a missing one is refused. Velocity and effort are not looked at.
    """
    if len(message.name) != len(message.position):
        raise Refused(f'joint state has {len(message.name)} names and {len(message.position)} '
                      'positions, must be one position for each name')
    places = {name: index for index, name in enumerate(message.name)}
    if len(places) != len(message.name):
        twice = next(name for index, name in enumerate(message.name) if places[name] != index)
        raise Refused(f'joint state names {twice[:MAX_NAME]!r} twice')
    for joint in joints:
        if joint not in places:
            raise Refused(f'joint {joint!r} of the model is missing in the joint state; '
                          f'{_nearest(joint, tuple(message.name))}')
    with np.errstate(over='ignore'):  # a value too large becomes inf and is refused below
        state = np.array([message.position[places[joint]] for joint in joints], np.float32)
    for joint, value in zip(joints, state, strict=True):
        if not math.isfinite(value):
            raise Refused(f'joint {joint!r}: position is {message.position[places[joint]]}')
    return state


@lru_cache  # a robot that is set up wrongly sends the same names hundreds of times a second
def _nearest(joint: str, names: tuple[str, ...]) -> str:
    near = [name[:MAX_NAME] for name in names[:MAX_NAMES]]
    nearest = get_close_matches(joint, near, n=1, cutoff=0.0)
    return f'the nearest it names is {nearest[0]!r}' if nearest else 'it names none'


def prompt_from(message: String) -> str:
    """
    Return the instruction without blanks at its ends, otherwise as it was sent; raise Refused.

    Control characters but tabs and line ends are refused, not replaced: what runs, and what
    the chunk names, is what somebody wrote, or nothing.
    """
    prompt: str = message.data.strip()
    if len(prompt) > MAX_PROMPT:
        raise Refused(f'instruction has {len(prompt)} characters, at most {MAX_PROMPT} are taken;'
                      ' the previous one stays')
    kinds = [unicodedata.category(character) for character in prompt]
    if BLANK.issuperset(kinds):
        raise Refused('empty instruction: the previous one stays')
    for index, (character, kind) in enumerate(zip(prompt, kinds, strict=True)):
        # A lone surrogate has no UTF-8 form: the chunk that names it could not be published.
        if kind == 'Cs' or (kind == 'Cc' and character not in '\t\n\r'):
            raise Refused(f'instruction has the control character {character!r} after {index} '
                          'characters; the previous one stays')
    return prompt


def stamp_ns(header: Header) -> int:
    """Return the stamp of a header, ns."""
    return from_time(header.stamp)


def from_time(time: Time) -> int:
    """Return a Time in ns."""
    return int(time.sec) * SECOND + int(time.nanosec)


def to_time(ns: int) -> Time:
    """Return ns as a Time, within what a Time can hold."""
    return Time(**_parts(int(ns)))


def to_duration(seconds: float) -> Duration:
    """Return seconds as a Duration, to the nearest ns, within what a Duration can hold."""
    return Duration(**_parts(round(float(seconds) * SECOND)))


def from_duration(duration: Duration) -> float:
    """Return a Duration in s."""
    return float(duration.sec + duration.nanosec / SECOND)


def _parts(ns: int) -> dict[str, int]:
    seconds, rest = divmod(ns, SECOND)
    if not -MAX_SECONDS <= seconds <= MAX_SECONDS:
        seconds, rest = (MAX_SECONDS, SECOND - 1) if seconds > 0 else (-MAX_SECONDS, 0)
    return {'sec': seconds, 'nanosec': rest}


def chunk_message(chunk: ActionChunk, model: ModelConfig, step_duration: float,
                  now_ns: int) -> ActionChunkMessage:
    """Return a chunk as robots get it; raise Refused if its actions are not the model's."""
    actions = _checked(chunk.actions, model.action_names)
    request, timings = chunk.request, chunk.timings
    return ActionChunkMessage(
        header=Header(stamp=to_time(now_ns)),
        robot=request.robot,
        request=int(request.number),
        model=request.model,
        prompt=request.observation.prompt,
        observation_stamp=to_time(request.observation.stamp_ns),
        step_duration=to_duration(step_duration),
        horizon=len(actions),
        names=list(model.action_names),
        units=[model.units] * len(model.action_names),
        # An array.array is taken as it is; every value of a list would be checked one by one.
        actions=array('f', actions.tobytes()),
        deadline=to_duration(request.deadline - request.arrived),
        deadline_met=bool(chunk.deadline_met),
        server_time=to_duration(chunk.finished - request.arrived),
        engine_time=to_duration(timings.engine),
        vlm_time=to_duration(timings.vlm),
        adit_time=to_duration(timings.adit),
        batch=int(chunk.batch),
    )


def trajectory_message(chunk: ActionChunk, model: ModelConfig,
                       step_duration: float) -> JointTrajectory:
    """
    Return a chunk as joint_trajectory_controller takes it: positions and times, stamp 0.

    Stamp 0 means 'from now on'; controllers refuse or rush what is stamped in their past.
    """
    actions = _checked(chunk.actions, model.action_names)
    points = [JointTrajectoryPoint(positions=array('d', row.tobytes()),
                                   time_from_start=to_duration((index + 1) * step_duration))
              for index, row in enumerate(actions.astype(np.float64))]
    return JointTrajectory(joint_names=list(model.action_names), points=points)


def _checked(actions: Any, names: Any) -> np.ndarray:
    """Return actions as float32 [T, A], T >= 1, one finite value for each name, or raise."""
    values = np.asarray(actions, np.float32)
    if values.ndim != 2 or values.shape[1] != len(names) or 0 in values.shape:
        raise Refused(f'actions have shape {list(values.shape)}, must be [steps, {len(names)}] '
                      f'for {", ".join(names)}')
    if not np.isfinite(values).all():
        raise Refused('actions have values that are not finite')
    return values
