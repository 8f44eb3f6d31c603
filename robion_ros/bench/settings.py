# SPDX-License-Identifier: Apache-2.0
"""
What an evaluation is told: the traffic, the deadlines, the ways of serving that are compared.

Loads nothing but config.py, so that the arguments of a command can be described from it. Knows
neither models nor engines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from robion_ros.config import check_range, FieldError

Mode = Literal['lockstep', 'monolithic', 'two-stream', 'stepwise', 'split']
"""How the stages of batches follow each other; modes.py says what each imitates."""

SLOS: Mapping[str, float] = {
    'pi0': 0.156,
    'xiaomi_robotics_0': 0.117,
    'gr00t_n1_5': 0.053,
    'smolvla': 0.050,
}
"""Deadlines by architecture, s: their latency on a Jetson AGX Thor (paper, section Evaluation)."""

FACTORIES = 'identical', 'groups', 'partial', 'heterogeneous'
"""Made-up factories. identical: every server takes every model, alike; groups: servers share
models only within groups of four; partial: a server has loaded some models; heterogeneous:
servers differ in speed, and each suits some models more than others."""


class BenchError(RuntimeError):
    """An evaluation cannot be made; the message says why and the mend."""


@dataclass(frozen=True)
class Size:
    """How large a made-up factory is."""

    models: int
    servers: int
    robots: int

    def __str__(self) -> str:
        return f'{self.models}x{self.servers}x{self.robots}'


@dataclass(frozen=True)
class Traffic:
    """Who asks how often, for how long, and how often that is repeated."""

    rate: float = 2.0
    """Requests per second of one robot, Hz."""
    epochs: int = 5
    """Runs of one number of robots, each with phases of its own."""
    seconds: float = 5.0
    """Of an epoch, that are counted."""
    lead: float = 1.0
    """Before those: the same traffic, not counted, so that queues are as they stay, s."""
    seed: int = 0
    """Of phases, pictures and the network."""
    target: float = 0.98
    """Part of the requests of every model that must be answered in time."""

    def __post_init__(self) -> None:
        check_range('rate', self.rate, 0.01, 1000)
        check_range('epochs', self.epochs, 1, 1000)
        check_range('seconds', self.seconds, 1 / self.rate, 86_400)
        check_range('lead', self.lead, 0, 3600)
        check_range('seed', self.seed, 0, 2**63 - 1)
        check_range('target', self.target, 0, 1)

    @property
    def period(self) -> float:
        """From request to request of one robot, s."""
        return 1 / self.rate


def name_models(architectures: Sequence[str]) -> Mapping[str, str]:
    """Return a name for each model, with its architecture: those of one are its variants."""
    several = {name for name in architectures if architectures.count(name) > 1}
    counts = dict.fromkeys(several, 0)
    named = {}
    for architecture in architectures:
        name = architecture
        if architecture in several:
            counts[architecture] += 1
            name = f'{architecture}_{counts[architecture]}'
        named[name] = architecture
    return named


def find_slos(models: Mapping[str, str], given: Mapping[str, float]) -> Mapping[str, float]:
    """
    Return each model's deadline, s.

    Those given, by model, architecture, or '' for all, come before the paper's. Raises FieldError
    where there is none, or one for a model that is not there.
    """
    for key in given:
        if key and key not in models and key not in models.values():
            raise FieldError('slo', f'{key!r} is none of the models {", ".join(models)}')
    found = {}
    for name, architecture in models.items():
        choices = (given.get(name), given.get(architecture), given.get(''),
                   SLOS.get(architecture))
        slo = next((choice for choice in choices if choice is not None), None)
        if slo is None:
            raise FieldError('slo', f'no deadline is known for {architecture}: give one in ms, '
                                    'for example --slo 100')
        found[name] = slo
    return found
