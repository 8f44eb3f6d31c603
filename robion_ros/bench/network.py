# SPDX-License-Identifier: Apache-2.0
"""
Networks between robots and server: one-way delays and losses, drawn for each request.

Networks stand in YAML; networks.yaml beside this module holds those with a name, and the sources
of their figures. Knows nothing of what is sent, nor of serving.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robion_ros.bench.arrivals import Arrival
from robion_ros.config import check_choice, check_range, FieldError
from robion_ros.factory_file import read

Z99 = 2.3263478740408408
"""The 99th percentile of the normal distribution with mean 0 and deviation 1."""
KNOWN = Path(__file__).with_name('networks.yaml')
NONE = 'none'
"""The network that takes no time and loses nothing."""


@dataclass(frozen=True)
class Link:
    """
    One direction: least plus a log-normal time, then the time that the bits take.

    Messages are delayed and lost independently of each other.
    """

    median: float
    """Of the one-way delay of a small message, ms."""
    p99: float
    """Its 99th percentile, ms."""
    least: float = 0.0
    """What no message falls below, such as the time of flight, ms."""
    loss: float = 0.0
    """Part of the messages that never arrive, after all that lower layers repeat."""
    mbit_s: float = 1000.0
    """What one robot's message is sent at, Mbit/s."""

    def __post_init__(self) -> None:
        check_range('least', self.least, 0, 60_000)
        check_range('median', self.median, self.least, 60_000)
        check_range('p99', self.p99, self.median, 60_000)
        check_range('loss', self.loss, 0, 1)
        check_range('mbit_s', self.mbit_s, 0.001, 1e6)
        if (self.median == self.least) != (self.p99 == self.median):
            raise FieldError('p99', f'is {self.p99}, median {self.median}, least {self.least}: '
                                    'either all are equal, for a fixed delay, or all differ')

    def draw(self, rng: np.random.Generator, count: int, kilobytes: float) -> list[float | None]:
        """Return the delays of messages, s; None for one that is lost."""
        # Both are drawn for every message, so that a seed means the same whatever is lost.
        normals, losses = rng.standard_normal(count), rng.random(count)
        delays = np.full(count, self.least)
        if self.p99 > self.median:
            middle, tail = self.median - self.least, self.p99 - self.least
            delays += middle * np.exp(normals * log(tail / middle) / Z99)
        delays += kilobytes * 8 / self.mbit_s
        return [None if lost else delay
                for delay, lost in zip((delays / 1e3).tolist(), losses < self.loss, strict=True)]


@dataclass(frozen=True)
class Network:
    """Both directions, and what goes through them."""

    up: Link
    """Robot to server."""
    down: Link
    """Server to robot."""
    request_kb: float = 60.0
    """Size of an observation, 1000 bytes: three pictures of 224x224 as JPEG."""
    chunk_kb: float = 6.4
    """Size of a chunk: 50 steps of 32 numbers of four bytes."""

    def __post_init__(self) -> None:
        check_range('request_kb', self.request_kb, 0, 1e6)
        check_range('chunk_kb', self.chunk_kb, 0, 1e6)


@dataclass(frozen=True)
class Networks:
    """What a file holds."""

    networks: Mapping[str, Network]


class Trip(NamedTuple):
    """A request with its way through the network."""

    arrival: Arrival
    up: float | None = 0.0
    """s; None: lost before the server."""
    down: float | None = 0.0
    """s; None: its chunk will be lost."""

    @property
    def due(self) -> float:
        """When the request reaches the server, s since the start of the epoch."""
        return inf if self.up is None else self.arrival.at + self.up

    @property
    def key(self) -> tuple[str, int]:
        """Robot and number: what no other request has."""
        return self.arrival.robot.name, self.arrival.number


def load_network(name: str) -> Network | None:
    """Return a network by its name, or that in a file; raise ConfigError or FieldError."""
    if name == NONE:
        return None
    if Path(name).suffix in ('.yaml', '.yml'):
        found = read(Networks, name, f'{KNOWN} is an example').networks
        if len(found) != 1:
            raise FieldError('network', f'{name} holds {", ".join(found) or "none"}, must be one')
        return next(iter(found.values()))
    known = read(Networks, KNOWN, '').networks
    check_choice('network', name, (NONE, *known, 'FILE.yaml'))
    return known[name]


def travel(arrivals: Sequence[Arrival], network: Network | None, seed: int,
           epoch: int) -> tuple[Trip, ...]:
    """Send requests on their way, in the order of arrivals; what happens comes from the seed."""
    if network is None:
        return tuple(map(Trip, arrivals))
    rng = np.random.default_rng((seed, epoch, 1))
    ups = network.up.draw(rng, len(arrivals), network.request_kb)
    downs = network.down.draw(rng, len(arrivals), network.chunk_kb)
    return tuple(map(Trip, arrivals, ups, downs))
