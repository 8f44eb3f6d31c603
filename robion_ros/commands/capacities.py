# SPDX-License-Identifier: Apache-2.0
"""
Capacities that no factory file gives: what is asked for, and what is known of it on this machine.

Knows neither how a capacity is measured nor how a table of them is printed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
import os

from robion_ros.bench.sustained import capacity_file
from robion_ros.config import FactoryConfig, FieldError
from robion_ros.engine.capacities import Capacity, CapacityFile, find, make_setting, Setting
from robion_ros.engine.device import open_device
from robion_ros.engine.memory import outline_models, Outlines

Place = tuple[str, str]
"""A server and one of its models."""


@dataclass(frozen=True)
class Wanted:
    """A capacity that is asked for."""

    device: str
    kind: str
    """Of the device, for people."""
    file: CapacityFile
    setting: Setting

    @property
    def key(self) -> tuple[str, Setting]:
        """What equal ones have in common: they are measured once."""
        return str(self.file.path), self.setting

    def known(self) -> Capacity | None:
        """Return what was measured before."""
        return find(self.file.read(), self.setting)


def ask(factory: FactoryConfig, places: Collection[Place]) -> dict[Place, Wanted]:
    """Say what the capacities of places are; raise FieldError where a device is not here."""
    found = {}
    known: Outlines = {}
    for name in dict.fromkeys(name for name, _ in places):
        server = factory.servers[name]
        try:
            device = open_device(server.device)
            outlines = outline_models(factory, name, known)
        except ValueError as error:
            raise FieldError(f'servers.{name}', str(error)) from error
        file, machine = capacity_file(device), device.machine
        for model in server.models:
            if (name, model) in places:
                found[name, model] = Wanted(
                    device.name, machine.get('gpu') or machine.get('cpu', ''), file,
                    make_setting(outlines[model].sizes, factory.models[model], server))
    return found


def missing(factory: FactoryConfig) -> list[Place]:
    """Return the servers and models whose capacity is not in the factory file."""
    return [(name, model) for name, server in factory.servers.items() for model in server.models
            if not factory.capacity(name, model)]


def look_up(factory: FactoryConfig, path: str | os.PathLike[str]) -> Mapping[Place, Capacity]:
    """Return capacities that the file at path does not give; raise FieldError without one."""
    found = {}
    for place, wanted in ask(factory, missing(factory)).items():
        name, model = place
        capacity = wanted.known()
        if capacity is None:
            raise FieldError(
                f'models.{model}.capacity', f'is not in the file, and was not measured for {name} '
                f"({wanted.device}) on this machine: run 'robion capacity {path}', or write the "
                'most robots that a server sustains there')
        found[place] = capacity
    return found
