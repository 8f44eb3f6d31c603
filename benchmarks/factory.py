# SPDX-License-Identifier: Apache-2.0
"""
What benchmarks of running factories share: two servers, and scripts in the place of servers.

Knows nothing of what is measured.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from robion_ros.commands.domain import claim_domain
from robion_ros.config import FactoryConfig
from robion_ros.factory_file import load
from robion_ros.processes import environment, Process

PATIENCE = 60.0
FACTORY = """
models:
  pick: &arm
    architecture: tiny
    cameras: {{front: raw, wrist: compressed}}
    joints: [joint_1, joint_2, joint_3, joint_4, joint_5, joint_6]
    prompt: pick
    rate: {rate}
    slo: 0.5
    capacity: {robots}
  place: {{<<: *arm, seed: 2}}
servers:
  server_0: {{{servers[0]}}}
  server_1: {{{servers[1]}}}
robots: {{pick: {half}, place: {half}}}
manager: {{server_timeout: {timeout}}}
"""


@contextmanager
def two_servers(servers: tuple[str, str], rate: float, robots: int,
                timeout: float) -> Iterator[tuple[FactoryConfig, Path]]:
    """Yield a factory and its file, in a ROS domain of its own; servers: of each, as YAML."""
    claim_domain(os.environ)
    os.environ |= environment()
    with TemporaryDirectory() as folder:
        path = Path(folder, 'factory.yaml')
        path.write_text(FACTORY.format(servers=servers, rate=rate, robots=robots,
                                       half=robots // 2, timeout=timeout))
        yield load(path), path


def until(condition: Callable[[], object], what: str) -> float:
    """Wait until something is so; return when."""
    end = monotonic() + PATIENCE
    while not condition():
        if monotonic() > end:
            raise SystemExit(f'waited in vain until {what}')
        sleep(0.005)
    return monotonic()


@dataclass(frozen=True)
class Script(Process):
    """A server as the script that runs has it; see serve_or."""

    options: str

    def command(self, python: str = sys.executable) -> list[str]:
        """Return the command line that starts it."""
        return [python, os.path.abspath(sys.argv[0]), 'serve', self.options, *self.arguments]


def scripted(process: Process, **options: Any) -> Process:
    """Put the script in the place of a server; options go to its serve."""
    if process.executable != 'server':
        return process
    return Script(**vars(process), options=json.dumps(options))


def serve_or(main: Callable[[], int | None], serve: Callable[..., int]) -> None:
    """Run a script: as the server that scripted has made of it, or its main."""
    if sys.argv[1:2] != ['serve']:
        raise SystemExit(main())
    os.environ.setdefault('OMP_NUM_THREADS', '1')  # As a server does, before torch is loaded.
    options = json.loads(sys.argv[2])
    del sys.argv[1:3]
    raise SystemExit(serve(**options))
