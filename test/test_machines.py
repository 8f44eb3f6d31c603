# SPDX-License-Identifier: Apache-2.0
"""
Two machines, made of network namespaces: a server on the other one joins by the graph alone.

Each has a network, and a shared memory, of its own. Needs Linux, root and iproute2.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
from threading import Thread
from uuid import uuid4

import pytest

from robion_ros.processes import environment

from .waiting import until

pytestmark = pytest.mark.ros

PATIENCE = 60.0
FACTORY = """
models:
  pick: &arm
    architecture: tiny
    cameras: {front: compressed}
    joints: [joint_1, joint_2]
    prompt: pick
    rate: 5.0
    slo: 2.0
    capacity: 8
  place: *arm
servers:
  server_0: {models: [pick, place]}
  server_1: {models: [pick, place]}
robots: {pick: 2, place: 2}
manager: {server_timeout: 1.0}
"""
MACHINE = """
import json, sys
from robion_ros.factory_file import load
from robion_ros.nodes.observer import Observer
from robion_ros.processes import factory_processes
from robion_ros.supervisor import print_line, Supervisor
path, *names = sys.argv[1:]
factory = load(path)
try:
    with Supervisor(process for process in factory_processes(factory, path, 'info', None)
                    if process.name in names) as supervisor:
        observer = Observer(factory.servers, 'manager') if 'manager' in names else None
        while not supervisor.wait(0.2):
            if observer:
                seen = observer.snapshot()
                print_line('seen ' + json.dumps({
                    'seats': {name: seat.server for name, seat in seen.seats.items()},
                    'answered': {name: report.answered for name, report in seen.reports.items()},
                    'mistakes': sum(report.duplicated + report.wrong
                                    for report in seen.reports.values())}))
except KeyboardInterrupt:
    pass
"""
ISOLATE = """
mount -t tmpfs tmpfs /dev/shm
[ ! -e /etc/machine-id ] || mount --bind "$0" /etc/machine-id
exec "$@"
"""
"""Fast DDS takes processes with one machine-id for neighbours, who share memory."""
ADDRESSES = '10.77.0.1', '10.77.0.2'


def ip(*words: str) -> None:
    subprocess.run(['ip', *words], check=True, capture_output=True)


@dataclass
class Machine:
    """Processes in a network namespace, and what they have said."""

    namespace: str
    link: str
    process: 'subprocess.Popen[str] | None' = None
    lines: list[str] = field(default_factory=list)
    seen: dict[str, object] = field(default_factory=dict)

    def start(self, path: Path, names: str, environ: Mapping[str, str]) -> None:
        identity = path.with_name(f'machine_id_{self.link}')
        identity.write_text(f'{uuid4().hex}\n')
        self.process = subprocess.Popen(
            ['ip', 'netns', 'exec', self.namespace, 'unshare', '-m', 'sh', '-e', '-c', ISOLATE,
             str(identity), sys.executable, '-P', '-c', MACHINE, str(path), *names.split()],
            env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        Thread(target=self._read, daemon=True).start()

    def end(self) -> None:
        if self.process:
            self.process.terminate()  # Not SIGINT, which whoever runs the tests may ignore.
            self.process.wait(PATIENCE)

    def _read(self) -> None:
        assert self.process and self.process.stdout
        for line in self.process.stdout:
            if line.startswith('seen '):
                self.seen = json.loads(line.removeprefix('seen '))
            else:
                self.lines.append(line)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Return two machines with a cable between them."""
    if os.geteuid() or not shutil.which('ip') or not shutil.which('unshare'):
        pytest.skip('needs root, iproute2 and util-linux')
    here, there = (Machine(f'robion_{os.getpid()}_{side}', f'rb{os.getpid()}{side}')
                   for side in 'ab')
    with ExitStack() as exits:
        for machine in (here, there):
            try:
                ip('netns', 'add', machine.namespace)
            except subprocess.CalledProcessError as error:
                pytest.skip(f'no network namespaces here: {error.stderr!r}')
            exits.callback(ip, 'netns', 'del', machine.namespace)
        ip('link', 'add', here.link, 'netns', here.namespace, 'type', 'veth',
           'peer', 'name', there.link, 'netns', there.namespace)
        for machine, address in zip((here, there), ADDRESSES, strict=True):
            ip('-n', machine.namespace, 'addr', 'add', f'{address}/24', 'dev', machine.link)
            ip('-n', machine.namespace, 'link', 'set', 'lo', 'up')
            ip('-n', machine.namespace, 'link', 'set', machine.link, 'up')
            exits.callback(machine.end)
        yield here, there


@pytest.mark.parametrize('discovery', ['peers', 'peers of one side'])
def test_server_of_another_machine_joins_and_its_robots_return_when_the_cable_breaks(
        machines: tuple[Machine, Machine], tmp_path: Path, discovery: str) -> None:
    here, there = machines

    def said() -> str:
        return ''.join(line for machine in machines for line in machine.lines[-30:]
                       ) + str(here.seen)
    wait = partial(until, said=said, seconds=PATIENCE, step=0.1)
    path = tmp_path / 'factory.yaml'
    path.write_text(FACTORY)
    for machine, names, other in ((here, 'server_0 manager simulated_robots', ADDRESSES[1]),
                                  (there, 'server_1', ADDRESSES[0])):
        environ = {**os.environ, **environment(), 'ROS_DOMAIN_ID': '0',
                   'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
        if machine is there or discovery == 'peers':
            environ['ROS_STATIC_PEERS'] = other
        ip('-n', machine.namespace, 'link', 'set', machine.link, 'multicast', 'off')
        machine.start(path, names, environ)

    def servers() -> set[str]:
        return set(here.seen.get('seats', {}).values())

    def all_answered() -> None:
        before = dict(here.seen['answered'])
        wait(lambda: len(here.seen['answered']) == 4 and all(
            count >= before.get(robot, 0) + 3
            for robot, count in here.seen['answered'].items()))
    wait(lambda: servers() == {'server_0', 'server_1'})
    all_answered()
    ip('-n', there.namespace, 'link', 'set', there.link, 'down')
    wait(lambda: servers() == {'server_0'})
    all_answered()
    ip('-n', there.namespace, 'link', 'set', there.link, 'up')
    wait(lambda: servers() == {'server_0', 'server_1'})
    all_answered()
    # While it was cut off, and until it was told, the other server may have answered, too.
    wait(lambda: any('called off' in line for line in here.lines))
    mistakes = here.seen['mistakes']
    all_answered()
    assert here.seen['mistakes'] == mistakes, ''.join(here.lines[-40:])
