# SPDX-License-Identifier: Apache-2.0
"""
Factories as ways of serving, whose robots, manager and servers talk over ROS.

Knows neither what is measured nor arguments.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from robion_ros.bench.ros_graph import Graph, open_graph
from robion_ros.bench.serving import Serving
from robion_ros.config import (
    EngineKind,
    FactoryConfig,
    LateRule,
    ModelConfig,
    Policy,
    ServerConfig,
)


@dataclass(frozen=True)
class Factories:
    """Makes factories."""

    configs: Mapping[str, ModelConfig]
    devices: tuple[str, ...]
    """Of each server."""
    max_batch: int
    late: LateRule
    robots: int
    """Most that will be asked for."""
    image: tuple[int, int]
    """Columns and rows of a picture."""
    seed: int

    @contextmanager
    def serve(self, mode: EngineKind, policy: Policy) -> Iterator[Serving]:
        """Serve with a factory; end its processes at the end."""
        servers = {f'server_{index}': ServerConfig(tuple(self.configs), device, self.max_batch,
                                                   policy, mode, self.late)
                   for index, device in enumerate(self.devices)}
        factory = FactoryConfig(self.configs, servers)
        with open_graph(Graph(factory, self.robots, image=self.image, seed=self.seed)) as serving:
            yield serving
