# SPDX-License-Identifier: Apache-2.0
"""
What a factory is made of: models, servers, robots and the manager, as frozen dataclasses.

Each part checks itself and raises FieldError naming the key, the value and the limit;
factory_file.py reads them from YAML and adds the file and the line. Knows neither ROS nor torch,
and not whether a checkpoint exists.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
import re
from typing import Annotated, get_args, Literal
import unicodedata

from robion_ros.architectures import ARCHITECTURES

Transport = Literal['raw', 'compressed']
ColorOrder = Literal['bgr', 'rgb']
Policy = Literal['earliest_slo_first', 'round_robin', 'largest_queue_first']
EngineKind = Literal['lockstep', 'monolithic']
LateRule = Literal['yield', 'serve', 'shed']

NAME = re.compile(r'[A-Za-z](_?[A-Za-z0-9])*')
ROBOT = re.compile(rf'{NAME.pattern}(/{NAME.pattern})*')
DEVICE = 'cpu|cuda(:[0-9]+)?'
MAX_NAME = 150
"""Longest name of a robot or node."""
MAX_CAMERA = 70
"""Longest name of a camera: '/<robot>/<camera>/image_raw/compressed' has to fit ROS' 247."""
MAX_CAPACITY = 100_000
"""Most robots of a model on a server."""


class FieldError(ValueError):
    """A value that cannot be, with the key it stands at and, of two of a kind, the other's."""

    def __init__(self, key: str, problem: str, other: str = '') -> None:
        super().__init__(f'{key}: {problem}')
        self.key = key
        self.problem = problem
        self.other = other


def roster(model: str, count: int) -> tuple[str, ...]:
    """Return the names of count robots of a model that are not named one by one."""
    return tuple(f'{model}_{index}' for index in range(1, count + 1))


Folder = Annotated[str, Path]
"""A path; one in a file is relative to that file's folder, and ~ is the home folder."""
HUB_ID = re.compile(r'[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*')
"""What a model of the Hugging Face hub is called: owner/name."""
FolderOrId = Annotated[str, HUB_ID]
"""The same; what is no path beside the file, but of the pattern, stays as it is written."""
Roster = Annotated[tuple[str, ...], roster]
"""Names; a file may give a count instead, which roster turns into names."""


def propose_name(name: str, pattern: re.Pattern[str] = ROBOT, kind: str = 'robot') -> str:
    """Return a valid ROS name that resembles name; kind begins one that lacks a letter."""
    plain = unicodedata.normalize('NFKD', name).encode('ascii', 'ignore').decode()
    kept = r'[^A-Za-z0-9/]+' if pattern is ROBOT else r'[^A-Za-z0-9]+'
    words = [word.strip('_') for word in re.sub(kept, '_', plain).split('/')]
    words = [word for word in words if word] or ['1']
    words = [word if word[0].isalpha() else f'{kind}_{word}' for word in words]
    return '/'.join(words)[:MAX_CAMERA].rstrip('/_')


def check_name(key: str, name: object, pattern: re.Pattern[str] = NAME, kind: str = 'robot',
               longest: int = MAX_NAME) -> None:
    """Raise FieldError unless name is a valid ROS name (or namespace, with pattern ROBOT)."""
    if not isinstance(name, str):
        raise FieldError(key, f'{name!r} is not text; write it in quotes, for example '
                              f"'{propose_name(str(name), pattern, kind)}'")
    if not pattern.fullmatch(name) or len(name) > longest:
        shown = name if len(name) <= 40 else f'{name[:40]}...'
        raise FieldError(key, f'{shown!r} is not a valid ROS name (letters, digits and single '
                              f'underscores, first a letter, at most {longest} characters); '
                              f"'{propose_name(name, pattern, kind)}' would be")


def check_range(key: str, value: float, low: float, high: float) -> None:
    """Raise FieldError unless low <= value <= high."""
    if not low <= value <= high:
        raise FieldError(key, f'is {value}, must be from {low} to {high}')


def check_choice(key: str, value: str, choices: Iterable[str], what: str = '') -> None:
    """Raise FieldError unless value is one of choices; what says of which kind they are."""
    choices = tuple(choices)
    if value not in choices:
        raise FieldError(key, f'{value!r} is not a valid {what or key}; {nearest(value, choices)}')


def check_unique(key: str, names: Iterable[str]) -> None:
    """Raise FieldError if a name stands twice or is empty."""
    homes: dict[str, str] = {}
    for index, name in enumerate(names):
        if not name.strip():
            raise FieldError(f'{key}[{index}]', 'is empty; write a name or remove it')
        check_free(f'{key}[{index}]', name, homes)


def check_filled(key: str, names: Collection[str]) -> None:
    """Raise FieldError if there is no name."""
    if not names:
        raise FieldError(key, 'is empty, must name at least one')


def check_free(key: str, name: str, homes: dict[str, str]) -> None:
    """Raise FieldError if name has a home, a key, already; give it one otherwise."""
    if homes.setdefault(name, key) != key:
        raise FieldError(key, f'{name!r} stands twice', homes[name])


SHOWN = 20
"""So many names are listed, of all that there are."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the mend of a name that is none of names."""
    names = tuple(names)
    if close := get_close_matches(name, names, 1):
        return f'did you mean {close[0]!r}?'
    others = f' or {len(names) - SHOWN} others' if len(names) > SHOWN else ''
    return f'must be one of {", ".join(names[:SHOWN])}{others}' if names else 'there is none'


@dataclass(frozen=True)
class CameraConfig:
    """One camera of a model's robots."""

    transport: Transport = 'raw'
    """raw: <robot>/<camera>/image_raw; compressed: the same with /compressed."""
    color_order: ColorOrder = 'bgr'
    """How the bytes of images of encoding 8UC3, which does not say it, are meant."""
    input: str = ''
    """Name of the checkpoint's camera that it is; empty: that of the same name."""

    def __post_init__(self) -> None:
        check_choice('transport', self.transport, get_args(Transport))
        check_choice('color_order', self.color_order, get_args(ColorOrder))


@dataclass(frozen=True)
class ModelConfig:
    """A policy and what its robots look like."""

    architecture: str
    cameras: Mapping[str, CameraConfig]
    """In the order of the model's inputs."""
    joints: tuple[str, ...]
    """Names in sensor_msgs/JointState, in the order of the model's state."""
    rate: float
    """Most requests per second of one robot, Hz."""
    slo: float
    """Deadline from complete observation to finished chunk, s."""
    capacity: int = 0
    """Most robots of this model that one server sustains at that rate and deadline; 0: servers
    measure it."""
    priority: int = 0
    """Where not all robots can be served, those of models of a higher priority are first."""
    checkpoint: FolderOrId = ''
    """Folder of the weights, or a model of the Hugging Face hub; empty: random, from seed."""
    tokenizer: Folder = ''
    """File of the tokenizer; empty: that in the checkpoint's folder."""
    step_duration: float = 0.0
    """Time between two steps of a chunk, s; 0: what the checkpoint says."""
    seed: int = 0
    prompt: str = ''
    """Instruction until the robot publishes one; empty: wait for it."""
    actions: tuple[str, ...] = ()
    """Names of the values of an action; empty: the joints."""
    units: str = 'rad'
    """Unit of the values of an action."""
    max_age: float = 1.0
    """Oldest image or state that still makes an observation, s since received."""
    joint_trajectory: bool = False
    """Publish chunks as trajectory_msgs/JointTrajectory, too."""

    def __post_init__(self) -> None:
        check_choice('architecture', self.architecture, ARCHITECTURES)
        for camera in self.cameras:
            check_name(f'cameras.{camera}', camera, ROBOT, 'camera', MAX_CAMERA)
        check_filled('cameras', self.cameras)
        check_filled('joints', self.joints)
        check_unique('joints', self.joints)
        check_unique('actions', self.actions)
        if self.prompt and not self.prompt.strip():
            raise FieldError('prompt', 'holds no word; write an instruction or leave it out')
        check_range('rate', self.rate, 0.01, 1000)
        check_range('slo', self.slo, 0.001, 60)
        check_range('capacity', self.capacity, 0, MAX_CAPACITY)
        check_range('priority', self.priority, -1000, 1000)
        check_range('max_age', self.max_age, 0.001, 3600)
        check_range('seed', self.seed, 0, 2**63 - 1)
        if self.step_duration:
            check_range('step_duration', self.step_duration, 0.001, 60)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the values of an action."""
        return self.actions or self.joints


@dataclass(frozen=True)
class ServerConfig:
    """One server node and its device."""

    models: tuple[str, ...]
    """Models loaded on it at its start."""
    device: str = 'cpu'
    """A torch device: cpu or cuda:<index>."""
    max_batch: int = 2
    """Most requests of one lockstep stage, a power of two."""
    policy: Policy = 'earliest_slo_first'
    """Which model's queue the next lockstep takes from."""
    engine: EngineKind = 'lockstep'
    """lockstep: VLM of one batch beside ADiT of the one before; monolithic: in sequence."""
    late: LateRule = 'yield'
    """What becomes of a waiting request whose deadline can no longer be met: it gives way to
    those that can, is served in its turn, or dropped."""
    capacities: Mapping[str, int] = field(default_factory=dict)
    """Most robots of a model that this server sustains, where it is not the model's capacity."""

    def __post_init__(self) -> None:
        check_filled('models', self.models)
        check_unique('models', self.models)
        for model, capacity in self.capacities.items():
            check_choice(f'capacities.{model}', model, self.models, "model of the server's")
            check_range(f'capacities.{model}', capacity, 1, MAX_CAPACITY)
        if not re.fullmatch(DEVICE, self.device):
            raise FieldError('device', f"is {self.device!r}, must be 'cpu' or 'cuda:<index>'")
        check_range('max_batch', self.max_batch, 1, 64)
        if self.max_batch & (self.max_batch - 1):
            raise FieldError('max_batch', f'is {self.max_batch}, must be a power of two')
        check_choice('policy', self.policy, get_args(Policy))
        check_choice('engine', self.engine, get_args(EngineKind))
        check_choice('late', self.late, get_args(LateRule))


@dataclass(frozen=True)
class ManagerConfig:
    """The manager node."""

    name: str = 'manager'
    time_limit: float = 1.0
    """Most time of the solver for one plan, s."""
    server_timeout: float = 0.4
    """A server whose heart did not beat for so long is taken as dead, s."""
    call_timeout: float = 1.0
    """Longest wait for a server's answer before the call is repeated, s."""

    def __post_init__(self) -> None:
        check_name('name', self.name, kind='manager')
        check_range('time_limit', self.time_limit, 0.01, 3600)
        check_range('server_timeout', self.server_timeout, 0.3, 3600)
        check_range('call_timeout', self.call_timeout, 0.05, 3600)


@dataclass(frozen=True)
class FactoryConfig:
    """Everything an operator writes down."""

    models: Mapping[str, ModelConfig]
    servers: Mapping[str, ServerConfig]
    robots: Mapping[str, Roster] = field(default_factory=dict)
    """Names of the robots of each model."""
    manager: ManagerConfig = field(default_factory=ManagerConfig)

    def __post_init__(self) -> None:
        check_filled('models', self.models)
        check_filled('servers', self.servers)
        for name in self.models:
            check_name(f'models.{name}', name, kind='model')
        homes = {self.manager.name: 'manager.name'}
        for name, server in self.servers.items():
            key = f'servers.{name}'
            check_name(key, name, kind='server')
            check_free(key, name, homes)
            for index, model in enumerate(server.models):
                check_choice(f'{key}.models[{index}]', model, self.models, 'model')
        for model, robots in self.robots.items():
            check_choice(f'robots.{model}', model, self.models, 'model')
            for index, robot in enumerate(robots):
                key = f'robots.{model}[{index}]'
                check_name(key, robot, ROBOT)
                check_free(key, robot, homes)

    def capacity(self, server: str, model: str) -> int:
        """
        Return the most robots of a model that a server sustains if it serves no other.

        0: the file does not say it, so the server measures it.
        """
        return self.servers[server].capacities.get(model, self.models[model].capacity)

