# SPDX-License-Identifier: Apache-2.0
"""A server and a manager whose factory files differ in server_timeout: real processes."""

from contextlib import ExitStack
import os
from pathlib import Path
import signal
from time import sleep

import pytest

from robion_ros.factory_file import load
from robion_ros.processes import environment, factory_processes

from .factories import Factory

pytestmark = pytest.mark.ros

FACTORY = """
models:
  pick:
    architecture: tiny
    cameras: {front: raw}
    joints: [joint_1, joint_2]
    prompt: pick
    rate: 5.0
    slo: 2.0
    capacity: 8
servers:
  server_0: {models: [pick]}
  server_1: {models: [pick], capacities: {pick: 2}}
robots: {pick: 2}
manager: {server_timeout: 1.0}
"""
ROBOTS = 'pick_1', 'pick_2'


def test_a_server_that_believes_in_a_longer_lease_is_named_and_not_replaced_within_it(
        own_domain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    at_server_0 = dict.fromkeys(ROBOTS, 'server_0')
    path, other = tmp_path / 'factory.yaml', tmp_path / 'other.yaml'
    path.write_text(FACTORY)
    other.write_text(FACTORY.replace('1.0}', '8.0}'))
    config = load(path)
    ours = [process for process in factory_processes(config, path, 'info', None)
            if process.name != 'server_0']
    theirs = [process for process in factory_processes(config, other)
              if process.name == 'server_0']
    with ExitStack() as exits:
        factory = Factory(config.servers, ROBOTS, 4, exits)
        supervisor = factory.start(theirs)
        factory.until(lambda: any(server.state == 'active' for server in
                                  factory.observer.snapshot().servers.values()),
                      'server_0 is active')
        # Only now, or the other one might have the robots, and keep them.
        factory.start(ours)
        factory.until(lambda: factory.seats == at_server_0, 'server_0 has the robots')
        factory.wait_for_answers()
        factory.until(lambda: any('server_0 has manager.server_timeout 8 s, this manager 1 s' in
                                  line for line in factory.lines), 'it is named')
        os.kill(supervisor.pids['server_0'], signal.SIGSTOP)
        try:
            sleep(2.5)  # Longer than the manager's own.
            assert factory.seats == at_server_0
        finally:
            os.kill(supervisor.pids['server_0'], signal.SIGCONT)
        factory.wait_for_answers()
        assert factory.seats == at_server_0
        assert not any('held up' in line for line in factory.lines)
        factory.check()
        # Not for ever: when its own lease has run out, it is replaced.
        os.kill(supervisor.pids['server_0'], signal.SIGKILL)
        factory.until(lambda: set(factory.seats.values()) == {'server_1'}, 'it is missed')
