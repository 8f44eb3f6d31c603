# SPDX-License-Identifier: Apache-2.0
"""The launch files, read and run by the real launch, which ROS machines alone have."""

from collections.abc import Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
from threading import Timer

import pytest

from robion_ros.commands.domain import claim_domain
from robion_ros.factory_file import load
from robion_ros.processes import example_config, factory_processes, server_process, share_folder

WHY = 'launch and launch_ros are not on PyPI, ROS machines have them'
launch = pytest.importorskip('launch', reason=WHY)
launch_ros = pytest.importorskip('launch_ros.actions', reason=WHY)
sources = pytest.importorskip('launch.launch_description_sources', reason=WHY)

pytestmark = pytest.mark.ros

PATIENCE = 90.0
SHARED = {'config', 'log_level', 'python'}
RUN = """
import sys
import launch
from launch.actions import IncludeLaunchDescription

service = launch.LaunchService()
service.include_launch_description(IncludeLaunchDescription(
    sys.argv[1], launch_arguments=[tuple(word.split(':=')) for word in sys.argv[2:]]))
sys.exit(service.run())
"""


def describe(name: str):
    source = sources.PythonLaunchDescriptionSource(
        str(share_folder() / 'launch' / f'{name}.launch.py'))
    return source.get_launch_description(launch.LaunchContext())


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let launch find the package also in an environment that nobody has sourced."""
    if not os.environ.get('AMENT_PREFIX_PATH'):
        monkeypatch.setenv('AMENT_PREFIX_PATH', sys.prefix)


def nodes(name: str, **arguments: str) -> Iterator[tuple[object, list[str]]]:
    """Yield the nodes that a launch file starts, each with its command line."""
    context = launch.LaunchContext()
    context.launch_configurations.update(arguments)
    entities = list(describe(name).entities)
    while entities:
        entity = entities.pop(0)
        if isinstance(entity, launch_ros.Node):
            yield entity, [''.join(map(context.perform_substitution, part))
                           for part in entity.cmd]
        else:
            entities[:0] = entity.visit(context) or []


@pytest.mark.parametrize(('name', 'own'), [('factory', {'robots'}), ('server', {'server'})],
                         ids=['factory', 'server'])
def test_arguments_are_described(name: str, own: set[str]) -> None:
    arguments = {argument.name: argument for argument in describe(name).get_launch_arguments()}
    assert set(arguments) == SHARED | own
    for argument in arguments.values():
        assert argument.description and argument.description != 'no description given'
    assert arguments['log_level'].choices == ['debug', 'info', 'warn', 'error', 'fatal']
    # Only which server it is, nobody can guess.
    assert {key for key, argument in arguments.items()
            if argument.default_value is None} == own - {'robots'}


@pytest.mark.parametrize('robots', [0, 2])
def test_factory_starts_the_processes_of_its_file(robots: int) -> None:
    config = example_config()
    wanted = factory_processes(load(config), config, 'warn', robots)
    started = list(nodes('factory', robots=str(robots), log_level='warn'))
    assert [Path(command[0]).name for _, command in started] == [
        process.executable for process in wanted]
    for (node, command), process in zip(started, wanted, strict=True):
        assert command[1:1 + len(process.arguments)] == list(process.arguments)
        assert Path(command[0]).parent.name == 'robion_ros' and Path(command[0]).is_file()
        assert node.node_package == 'robion_ros'


def test_server_starts_one_server() -> None:
    config = example_config()
    wanted = server_process(load(config), config, 'server_1')
    [(_, command)] = nodes('server', server='server_1')
    assert command[1:1 + len(wanted.arguments)] == list(wanted.arguments)


@pytest.mark.parametrize(('name', 'arguments', 'problem'), [
    ('factory', {'robots': '99'}, 'cannot simulate 99'),
    ('factory', {'config': '/none.yaml'}, '/none.yaml: there is no such file'),
    ('server', {'server': 'server_2'}, 'server_2'),
], ids=['robots', 'config', 'server'])
def test_wrong_argument_is_named(name: str, arguments: dict[str, str], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        list(nodes(name, **arguments))


def test_factory_serves_and_ends_without_a_trace() -> None:
    environ = dict(os.environ)
    environ.pop('ROS_DOMAIN_ID', None)
    claim_domain(environ)
    path = share_folder() / 'launch' / 'factory.launch.py'
    process = subprocess.Popen(
        [sys.executable, '-c', RUN, str(path), 'robots:=2'], env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    guard = Timer(PATIENCE, os.killpg, (process.pid, signal.SIGKILL))
    guard.start()
    lines = []
    try:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if '8 of 8 robots assigned' in line:
                os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
        code = process.wait()
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # Nobody is left.
    finally:
        guard.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    text = ''.join(lines)
    assert code == 0 and 'Traceback' not in text, text
    assert text.count('process has finished cleanly') == 4, text


def test_what_dies_is_started_again_unless_it_refused(tmp_path: Path) -> None:
    """Also by launch, which by itself would go on starting it for ever."""
    config = tmp_path / 'factory.yaml'
    config.write_text(example_config().read_text())
    path = share_folder() / 'launch' / 'server.launch.py'
    environ = dict(os.environ)
    environ.pop('ROS_DOMAIN_ID', None)
    claim_domain(environ)
    command = [sys.executable, '-c', RUN, str(path), f'config:={config}', 'server:=server_0']

    def start() -> 'subprocess.Popen[str]':
        return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def read(process: 'subprocess.Popen[str]', text: str) -> list[str]:
        lines = []
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if text in line:
                return lines
        pytest.fail(f'{text!r} was not printed: {"".join(lines)}')
    first, second = start(), None
    guard = Timer(PATIENCE, os.killpg, (first.pid, signal.SIGKILL))
    guard.start()
    try:
        [line] = [line for line in read(first, 'process started with pid') if 'pid [' in line]
        read(first, 'engine ready')
        os.kill(int(line.split('pid [')[1].split(']')[0]), signal.SIGKILL)
        read(first, 'process started with pid')
        read(first, 'engine ready')
        second = start()
        read(second, 'ended with code 2, see above; it is not started again')
        assert second.wait(PATIENCE) == 0  # Nothing of it is left to wait for.
        os.killpg(first.pid, signal.SIGINT)
        rest, _ = first.communicate(timeout=PATIENCE)
        assert 'Traceback' not in rest
    finally:
        guard.cancel()
        for process in (first, second):
            if process and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
