# SPDX-License-Identifier: Apache-2.0
"""
Factories of one server as ways of serving, whose robots, manager and server talk over ROS.

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
    device: str
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
        server = ServerConfig(tuple(self.configs), self.device, self.max_batch, policy, mode,
                              self.late)
        factory = FactoryConfig(self.configs, {'server': server})
        with open_graph(Graph(factory, self.robots, image=self.image, seed=self.seed)) as serving:
            yield serving
