# SPDX-License-Identifier: Apache-2.0
"""
Engines in this process as ways of serving: a mode's pipeline under a policy.

Knows neither what is measured nor arguments.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from robion_ros.bench.drive import EngineServing, never
from robion_ros.bench.modes import make_pipeline, ModeOptions
from robion_ros.bench.observations import Observations
from robion_ros.bench.prepared import Prepared
from robion_ros.bench.serving import Serving
from robion_ros.bench.settings import Mode
from robion_ros.config import LateRule, Policy, ServerConfig
from robion_ros.engine.engine import Engine
from robion_ros.models.protocol import Model


@dataclass(frozen=True, eq=False)
class Engines:
    """Makes engines of prepared models."""

    prepared: Prepared
    sources: Mapping[str, Observations]
    late: LateRule
    options: ModeOptions
    check: Callable[[], None] = never
    """Called before each request; what it raises ends the run."""

    @contextmanager
    def serve(self, mode: Mode, policy: Policy) -> Iterator[Serving]:
        """Serve with an engine; stop it at the end."""
        server = ServerConfig(tuple(self.prepared.ready), self.prepared.device.name,
                              self.prepared.max_batch, policy, late=self.late)
        pipeline = make_pipeline(mode, self.prepared, self.options)
        # Those of the others are not known before they run.
        times = self.prepared.times if mode == 'lockstep' else None
        serving = EngineServing(
            lambda on_outcome: Engine(self.prepared.ready, pipeline, server, on_outcome, times),
            self.sources, self.check)
        try:
            yield serving
        finally:
            serving.close()


def make_sources(prepared: Prepared, height: int, width: int,
                 seed: int) -> Mapping[str, Observations]:
    """Make the observations of each model's robots."""
    return {name: make_source(model, height, width, seed + index)
            for index, (name, model) in enumerate(prepared.models.items())}


def make_source(model: Model, height: int, width: int, seed: int) -> Observations:
    """Make the observations of one model's robots."""
    return Observations(model.spec.cameras, model.spec.state_size, height, width, seed)
