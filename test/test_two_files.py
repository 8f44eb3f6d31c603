# SPDX-License-Identifier: Apache-2.0
"""A server and a manager whose factory files differ in server_timeout: real processes."""

from contextlib import ExitStack
import os
from pathlib import Path
import signal
from time import monotonic, sleep

import pytest

from robion_ros.factory_file import load
from robion_ros.nodes.observer import Observer
from robion_ros.processes import environment, factory_processes
from robion_ros.supervisor import Supervisor

pytestmark = pytest.mark.ros

PATIENCE = 90.0
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


def test_a_server_that_believes_in_a_longer_lease_is_named_and_not_replaced_within_it(
        own_domain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    path, other = tmp_path / 'factory.yaml', tmp_path / 'other.yaml'
    path.write_text(FACTORY)
    other.write_text(FACTORY.replace('1.0}', '8.0}'))
    config = load(path)
    ours = [process for process in factory_processes(config, path, 'info', None)
            if process.name != 'server_0']
    theirs = [process for process in factory_processes(config, other)
              if process.name == 'server_0']
    lines: list[str] = []
    with ExitStack() as exits:
        supervisor = exits.enter_context(Supervisor(theirs, say=lines.append))
        observer = Observer(config.servers, 'manager', 'simulated_robots')
        exits.callback(observer.close)

        def until(condition, what: str) -> None:
            end = monotonic() + PATIENCE
            while not condition():
                assert monotonic() < end, '\n'.join([*lines[-40:], f'not so: {what}'])
                sleep(0.05)

        def seats() -> dict[str, str]:
            return {robot: seat.server for robot, seat in observer.snapshot().seats.items()}

        def answered() -> int:
            return min([report.answered for report in observer.snapshot().reports.values()]
                       + [0] * (len(seats()) < 2))
        until(lambda: any(server.state == 'active' for server in
                          observer.snapshot().servers.values()), 'server_0 is active')
        # Only now, or the other one might have the robots, and keep them.
        exits.enter_context(Supervisor(ours, say=lines.append))
        until(lambda: seats() and set(seats().values()) == {'server_0'} and answered() > 3,
              'server_0 has the robots')
        until(lambda: any('server_0 has manager.server_timeout 8 s, this manager 1 s' in line
                          for line in lines), 'it is named')
        os.kill(supervisor.pids['server_0'], signal.SIGSTOP)
        try:
            sleep(2.5)  # Longer than the manager's own.
            assert set(seats().values()) == {'server_0'}
        finally:
            os.kill(supervisor.pids['server_0'], signal.SIGCONT)
        before = answered()
        until(lambda: answered() > before + 3, 'its robots are answered')
        assert set(seats().values()) == {'server_0'}
        assert not any('held up' in line for line in lines)
        for report in observer.snapshot().reports.values():
            assert (report.duplicated, report.wrong) == (0, 0)
        # Not for ever: when its own lease has run out, it is replaced.
        os.kill(supervisor.pids['server_0'], signal.SIGKILL)
        until(lambda: set(seats().values()) == {'server_1'}, 'it is missed')
