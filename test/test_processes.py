# SPDX-License-Identifier: Apache-2.0
"""The processes of a factory, and what ROS makes of the arguments and the environment."""

from collections.abc import Iterator
from dataclasses import replace
import os
from pathlib import Path
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node

from robion_ros.config import FieldError
from robion_ros.factory_file import load
from robion_ros.processes import (
    by_device,
    environment,
    example_config,
    factory_processes,
    NotInstalledError,
    parameter,
    Process,
    PROFILE_2,
    PROFILE_3,
    ROOM,
    server_process,
    share_folder,
    SHARED_MEMORY,
)

CONFIG = Path(__file__).resolve().parents[1] / 'config'
DEMO = CONFIG / 'demo.yaml'
TEXTS = ['123', 'yes', 'a: b', '', '# x', '~', '/a b/c.yaml', "it's", 'q"uo\\te', 'two\nlines\t',
         'grüße 拿 🤖', '[a, b]', '{x: 1}', 'a:=b', '$(x)', '-r', '1e3', ' lead']


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a prefix in which the package is installed, and the only one that is known."""
    index = tmp_path / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    (index / 'robion_ros').touch()
    (tmp_path / 'share/robion_ros').mkdir()
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    monkeypatch.setattr(sys, 'prefix', '/nowhere')
    return tmp_path


@pytest.fixture
def context() -> Iterator[Context]:
    """Return a context of rclpy to be started."""
    context = Context()
    yield context
    context.try_shutdown()


def summary(processes: tuple[Process, ...]) -> list[tuple[str, str, bool]]:
    return [(process.name, process.executable, process.respawn) for process in processes]


def test_a_factory_is_its_servers_and_the_manager() -> None:
    assert summary(factory_processes(load(DEMO), DEMO)) == [
        ('server_0', 'server', True), ('server_1', 'server', True), ('manager', 'manager', True)]


def test_manager_has_the_name_of_the_factory_file(tmp_path: Path) -> None:
    path = tmp_path / 'factory.yaml'
    path.write_text(DEMO.read_text().replace('manager: {', 'manager: {name: boss, '))
    assert summary(factory_processes(load(path), path))[-1] == ('boss', 'manager', True)


@pytest.mark.parametrize(('simulate', 'robots'), [(1, 1), (8, 8), (None, 8)])
def test_simulated_robots_follow(simulate: int | None, robots: int) -> None:
    process = factory_processes(load(DEMO), DEMO, simulate=simulate)[-1]
    assert summary((process,)) == [('simulated_robots', 'robot', False)]
    assert process.arguments[-2:] == ('-p', f'robots:={robots}')


@pytest.mark.parametrize(('arguments', 'message'), [
    ({'simulate': 9}, r'robots: cannot simulate 9, .*demo\.yaml names 8'),
    ({'simulate': -1}, 'robots: cannot simulate -1'),
    ({'log_level': 'loud'}, "log_level: 'loud' .* debug, info, warn, error, fatal"),
])
def test_what_cannot_be_started_is_said(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        factory_processes(load(DEMO), DEMO, **arguments)  # type: ignore[arg-type]


def test_one_server_alone_is_the_one_of_the_factory() -> None:
    config = load(DEMO)
    # Whoever starts the whole factory also knows which servers share a device.
    assert server_process(config, DEMO, 'server_1', beside=['server_0']) == factory_processes(
        config, DEMO)[1]
    assert 'beside' not in str(server_process(config, DEMO, 'server_1'))
    with pytest.raises(FieldError, match=r"server: 'server_3' .* did you mean 'server_"):
        server_process(config, DEMO, 'server_3')


def test_servers_share_a_device_by_its_whole_name() -> None:
    config = load(DEMO)
    devices = {'a': 'cuda', 'b': 'cuda:0', 'c': 'cuda:1', 'd': 'cuda:0'}
    config = replace(config, servers={name: replace(config.servers['server_0'], device=device)
                                      for name, device in devices.items()})
    assert by_device(config) == {'cuda:0': ['a', 'b', 'd'], 'cuda:1': ['c']}
    processes = factory_processes(config, DEMO)
    assert processes[1] == server_process(config, DEMO, 'b', beside=['a', 'd'])
    assert processes[2] == server_process(config, DEMO, 'c')


def test_command_runs_the_installed_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CONFIG)
    process = server_process(load('demo.yaml'), 'demo.yaml', 'server_0', 'debug')
    assert process.command('/opt/python') == [
        '/opt/python', '-P', '-m', 'robion_ros.nodes', 'server', '--ros-args',
        '-r', '__node:=server_0', '--log-level', 'server_0:=debug', '-p', f'config:="{DEMO}"',
        '-p', 'server:="server_0"', '-p', 'autostart:=true']
    assert process.command()[0] == sys.executable


@pytest.mark.ros
def test_ros_understands_the_arguments(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "yes: it's [1]" / '123.yaml'
    path.parent.mkdir()
    path.write_bytes(DEMO.read_bytes())
    process = server_process(load(path), path, 'server_1', 'debug')
    rclpy.init(args=['program', *process.arguments], context=context)
    node = Node('any', context=context, automatically_declare_parameters_from_overrides=True)
    assert node.get_name() == 'server_1'
    assert node.get_logger().get_effective_level() == rclpy.logging.LoggingSeverity.DEBUG
    assert [node.get_parameter(name).value for name in ('config', 'server', 'autostart')] == [
        str(path), 'server_1', True]


@pytest.mark.ros
def test_parameters_arrive_as_they_are(context: Context) -> None:
    values: list[bool | int | float | str] = [*TEXTS, True, 5, 2.0, 1e-7, 1e22]
    arguments = [word for index, value in enumerate(values)
                 for word in parameter(f'p{index}', value)]
    rclpy.init(args=['program', '--ros-args', *arguments], context=context)
    node = Node('any', context=context, automatically_declare_parameters_from_overrides=True)
    arrived = [node.get_parameter(f'p{index}').value for index in range(len(values))]
    assert [(type(value), value) for value in arrived] == [
        (type(value), value) for value in values]


@pytest.mark.parametrize(('fast_dds', 'name'), [
    ('fastdds', 'FASTDDS_DEFAULT_PROFILES_FILE'), ('fastrtps', 'FASTRTPS_DEFAULT_PROFILES_FILE')])
@pytest.mark.parametrize('sourced', [True, False])
def test_environment_brings_the_transports_of_the_installation(
        prefix: Path, monkeypatch: pytest.MonkeyPatch, fast_dds: str, name: str,
        sourced: bool) -> None:
    (prefix / 'share' / fast_dds).mkdir()
    if not sourced:
        monkeypatch.delenv('AMENT_PREFIX_PATH')
        monkeypatch.setattr(sys, 'prefix', str(prefix))
    environ = {'AMENT_PREFIX_PATH': str(prefix)} if sourced else {}
    assert environment(environ, prefix) == {
        'PYTHONUNBUFFERED': '1', name: str(prefix / 'share/robion_ros/config/fastdds.xml')}


def test_logs_come_at_once_unless_told_otherwise(prefix: Path) -> None:
    assert environment({}, prefix)['PYTHONUNBUFFERED'] == '1'
    assert 'PYTHONUNBUFFERED' not in environment({'PYTHONUNBUFFERED': ''}, prefix)


@pytest.mark.parametrize('name', [PROFILE_2, PROFILE_3, 'FASTDDS_BUILTIN_TRANSPORTS'])
@pytest.mark.parametrize('value', ['mine', ''])
def test_transports_of_the_user_are_left_alone(prefix: Path, name: str, value: str) -> None:
    assert environment({name: value}, prefix) == {'PYTHONUNBUFFERED': '1'}


def test_environment_that_was_set_needs_nothing(prefix: Path) -> None:
    assert environment(environment({}, prefix), prefix) == {}


def test_shared_memory_without_room_is_said_and_left_alone(
        prefix: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: SimpleNamespace(free=ROOM - 1))
    assert environment({}, prefix) == {'PYTHONUNBUFFERED': '1'}
    assert '--shm-size=1g' in caplog.text


def test_share_folder_is_found_by_the_index(prefix: Path) -> None:
    assert share_folder() == prefix / 'share/robion_ros'
    assert example_config() == prefix / 'share/robion_ros/config/demo.yaml'


@pytest.mark.parametrize('index', [None, '/nowhere'], ids=['no index', 'index without it'])
def test_share_folder_is_found_beside_the_interpreter_or_missed(
        prefix: Path, monkeypatch: pytest.MonkeyPatch, index: str | None) -> None:
    monkeypatch.delenv('AMENT_PREFIX_PATH')
    if index:
        monkeypatch.setenv('AMENT_PREFIX_PATH', index)
    monkeypatch.setattr(sys, 'prefix', str(prefix))
    assert share_folder() == prefix / 'share/robion_ros'
    monkeypatch.setattr(sys, 'prefix', '/nowhere')
    with pytest.raises(NotInstalledError, match=r'pip install \.'):
        share_folder()


@pytest.mark.ros
@pytest.mark.skipif(not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < ROOM,
                    reason='the profile needs shared memory')
def test_fast_dds_takes_the_profile() -> None:
    # Fast DDS goes on with its defaults where it does not understand a profile, and prints why.
    script = ('import glob, os, rclpy\n'
              'rclpy.init()\n'
              'node = rclpy.create_node("any")\n'
              'print(max(os.stat(path).st_size for path in glob.glob("/dev/shm/fast*")))\n')
    environ = os.environ | dict.fromkeys([PROFILE_2, PROFILE_3], str(CONFIG / 'fastdds.xml'))
    result = subprocess.run([sys.executable, '-c', script], env=environ, capture_output=True,
                            text=True, timeout=60)
    errors = [line for line in result.stderr.splitlines() if 'is deprecated' not in line]
    assert errors == []
    assert int(result.stdout) >= 32 * 2**20
