# SPDX-License-Identifier: Apache-2.0
"""
Which processes a factory consists of, and the environment that they need.

The one description that robion up, robion demo and the launch files start from. Starts nothing
itself and knows neither rclpy nor launch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
import json
import logging
import os
from pathlib import Path
import shutil
import sys

from robion_ros.config import check_choice, FactoryConfig, FieldError

LOG_LEVELS = ('debug', 'info', 'warn', 'error', 'fatal')
PROFILE_3 = 'FASTDDS_DEFAULT_PROFILES_FILE'
"""What Fast DDS 3 (Kilted) reads."""
PROFILE_2 = 'FASTRTPS_DEFAULT_PROFILES_FILE'
"""What Fast DDS 2 (Jazzy) reads; 3 warns of it in every process."""
SHARED_MEMORY = Path('/dev/shm')
ROOM = 256 * 2**20
"""Least free shared memory for config/fastdds.xml: each process takes 34 MiB."""


class NotInstalledError(RuntimeError):
    """The package was not installed, or its installation is not known here."""


@dataclass(frozen=True)
class Process:
    """One process of a factory: a node with its arguments."""

    name: str
    """Of the node."""
    executable: str
    """In lib/robion_ros, and the module of robion_ros.nodes it runs."""
    arguments: tuple[str, ...]
    """ROS arguments; more may follow them, see parameter."""
    respawn: bool
    """Whether to start it again when it ends by itself."""

    def command(self, python: str = sys.executable) -> list[str]:
        """Return the command line that starts it."""
        # -P: a folder robion_ros in the working directory, such as that of a clone, which lacks
        # the generated interfaces, must not stand before the installed one.
        return [python, '-P', '-m', 'robion_ros.nodes', self.executable, *self.arguments]


def factory_processes(config: FactoryConfig, path: str | os.PathLike[str],
                      log_level: str = 'info', simulate: int | None = 0,
                      ) -> tuple[Process, ...]:
    """
    Return the servers and the manager of the factory file at path.

    With simulate, a process follows that simulates the first so many of the file's robots;
    None: all of them. Raise FieldError where the file has fewer.
    """
    known = sum(map(len, config.robots.values()))
    robots = known if simulate is None else simulate
    if not 0 <= robots <= known:
        raise FieldError('robots', f'cannot simulate {robots}, {path} names {known}')
    beside = {name: [other for other in names if other != name]
              for names in by_device(config).values() for name in names}
    processes = [server_process(config, path, name, log_level, beside[name])
                 for name in config.servers]
    processes.append(_process(config.manager.name, 'manager', True, path, log_level))
    if robots:
        processes.append(_process('simulated_robots', 'robot', False, path, log_level,
                                  robots=robots))
    return tuple(processes)


def by_device(config: FactoryConfig) -> dict[str, list[str]]:
    """Return the servers of each device, as if all were on one machine."""
    devices: dict[str, list[str]] = {}
    for name, server in config.servers.items():
        whole = 'cuda:0' if server.device == 'cuda' else server.device
        devices.setdefault(whole, []).append(name)
    return devices


def server_process(config: FactoryConfig, path: str | os.PathLike[str], name: str,
                   log_level: str = 'info', beside: Iterable[str] = ()) -> Process:
    """
    Return one server of the factory file at path; raise FieldError if it has none so named.

    beside are other servers that share its device.
    """
    check_choice('server', name, config.servers)
    shared = {'beside': ' '.join(beside)} if beside else {}
    return _process(name, 'server', True, path, log_level, server=name, autostart=True, **shared)


def _process(name: str, executable: str, respawn: bool, path: str | os.PathLike[str],
             log_level: str, **values: bool | int | str) -> Process:
    check_choice('log_level', log_level, LOG_LEVELS)
    # The level of the node alone: at 'debug' ROS' own loggers would drown it.
    arguments = ['--ros-args', '-r', f'__node:={name}', '--log-level', f'{name}:={log_level}',
                 *parameter('config', os.path.abspath(path))]
    for key, value in values.items():
        arguments += parameter(key, value)
    return Process(name, executable, tuple(arguments), respawn)


def parameter(name: str, value: bool | int | float | str) -> tuple[str, str]:
    """Return the ROS arguments that set a parameter; text stays text, whatever it looks like."""
    # ROS reads the value as YAML, of which JSON is a part.
    return '-p', f'{name}:={json.dumps(value, ensure_ascii=False)}'


def environment(environ: Mapping[str, str] = os.environ,
                shared_memory: Path = SHARED_MEMORY) -> dict[str, str]:
    """
    Return what has to be set, and is not yet, for logs to come at once and images at all.

    Transports of the user's choice are left alone.
    """
    values = {'PYTHONUNBUFFERED': '1'}
    if not {PROFILE_2, PROFILE_3, 'FASTDDS_BUILTIN_TRANSPORTS'} & environ.keys():
        if not shared_memory.is_dir() or shutil.disk_usage(shared_memory).free >= ROOM:
            prefixes = [*environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep), sys.prefix]
            is_2 = any(Path(prefix, 'share', 'fastrtps').is_dir() for prefix in prefixes if prefix)
            profile = share_folder() / 'config' / 'fastdds.xml'
            values[PROFILE_2 if is_2 else PROFILE_3] = str(profile)
        else:
            logging.getLogger(__name__).warning(
                '%s has less than %d MiB free, so images of more than 512 KB may be lost; in '
                'a container, start it with --shm-size=1g', shared_memory, ROOM >> 20)
    return {name: value for name, value in values.items() if name not in environ}


def example_config() -> Path:
    """Return the installed factory file that runs on any machine."""
    return share_folder() / 'config' / 'demo.yaml'


def share_folder() -> Path:
    """Return the installed share/robion_ros."""
    # Here, for evaluations run where there is no ROS.
    from ament_index_python.packages import get_package_share_path
    try:
        return get_package_share_path('robion_ros')
    except (LookupError, OSError):
        # Nobody sources a setup file where ROS comes from pip.
        folder = Path(sys.prefix, 'share', 'robion_ros')
        if folder.is_dir():
            return folder
        raise NotInstalledError(
            f'robion_ros is not installed, neither on AMENT_PREFIX_PATH nor in {sys.prefix}: '
            "run 'pip install .' in its folder, or 'colcon build' and then "
            "'source install/setup.bash'") from None
