# SPDX-License-Identifier: Apache-2.0
"""
How many robots of a model one device sustains: what is known, and who finds out the rest.

A machine measures each once, and processes that start together divide it among themselves. Knows
neither how it is measured nor what a robot is.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
import logging
from math import log
import platform
from typing import Any

from robion_ros.config import check_range, MAX_CAPACITY, ModelConfig, ServerConfig
from robion_ros.engine.machine_file import MachineFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """
    What a capacity depends on beside the machine.

    Not on the queue policy: a model that is alone on a device has no other to give way to.
    """

    sizes: str
    """Of the model, as registry.Outline has it."""
    slo: float
    """Deadline, s."""
    rate: float
    """Requests per second of one robot, Hz."""
    max_batch: int
    engine: str
    late: str


@dataclass(frozen=True)
class Capacity:
    """What was measured."""

    robots: int
    """The most that are sustained; 0: not even one."""
    attainment: float
    """Part of their requests that was answered in time; of one robot, where robots is 0."""
    p99: float | None
    """99th percentile of their latencies, s; None: none was answered."""
    scaled_from: float = 0.0
    """Rate at which it was measured, Hz, where that is another one; 0: at this rate."""

    def __post_init__(self) -> None:
        check_range('robots', self.robots, 0, MAX_CAPACITY)
        check_range('attainment', self.attainment, 0, 1)
        if self.p99 is not None:
            check_range('p99', self.p99, 0, 1e6)
        check_range('scaled_from', self.scaled_from, 0, 1e6)


Table = Mapping[Setting, Capacity]


class CapacityFile(MachineFile):
    """The capacities of one kind of machine, in a file of their own."""

    def read(self) -> dict[Setting, Capacity]:
        """Return what was measured on such a machine; a file that cannot be read holds none."""
        return dict(self.parse(_parse))

    def add(self, setting: Setting, capacity: Capacity) -> None:
        """Write a capacity beside what stands in the file."""
        self.rewrite(lambda: [
            {**asdict(one), 'robots': found.robots, 'attainment': found.attainment,
             'p99': found.p99, 'scaled_from': found.scaled_from}
            for one, found in (self.read() | {setting: capacity}).items()])


def make_setting(sizes: str, model: ModelConfig, server: ServerConfig) -> Setting:
    """Return what the capacity of a model on a server depends on."""
    return Setting(sizes, model.slo, model.rate, server.max_batch, server.engine, server.late)


def find(table: Table, setting: Setting) -> Capacity | None:
    """
    Return what is known of a setting; None if nothing is.

    Where it was measured at other rates alone, the nearest of them is scaled: a device answers so
    many requests per second, whoever asks. A capacity that this would make 0 is not known.
    """
    if setting in table:
        return table[setting]
    rates = [one.rate for one in table if replace(one, rate=setting.rate) == setting]
    if not rates:
        return None
    rate = min(rates, key=lambda rate: abs(log(rate / setting.rate)))
    scaled = scale(table[replace(setting, rate=rate)], rate, setting.rate)
    return scaled if scaled.robots else None


def scale(capacity: Capacity, measured: float, wanted: float) -> Capacity:
    """Return a capacity measured at one rate, Hz, for another."""
    # The smallest part of a robot is rounding, as in 10 * 0.3 / 0.1.
    robots = min(int(capacity.robots * measured / wanted + 1e-9), MAX_CAPACITY)
    return replace(capacity, robots=robots, scaled_from=measured)


def obtain(file: CapacityFile, wanted: Mapping[str, Setting], device: str,
           measure: Callable[[str], Capacity], wait: Callable[[], None],
           again: bool = False) -> dict[str, Capacity]:
    """
    Return the capacities of models by name: known ones, the others measured on a device.

    A setting is measured by one process at a time, and a device measures one at a time; wait is
    called while others do, and may raise. again: measure also what is known.
    """
    known = {} if again else file.read()
    found = {setting: capacity for setting in wanted.values()
             if (capacity := find(known, setting))}
    # Models of equal sizes and deadlines are measured once.
    left: dict[Setting, str] = {}
    for model, setting in wanted.items():
        if setting not in found:
            left.setdefault(setting, model)
    while left:
        before = len(left)
        for setting, model in list(left.items()):
            with file.claim(repr(setting)) as mine:
                if not mine:
                    continue
                there = None if again else file.read().get(setting)
                found[setting] = there or _measure(file, setting, device,
                                                   partial(measure, model), wait)
            del left[setting]
        if len(left) == before:
            wait()
    return {model: found[setting] for model, setting in wanted.items()}


def _measure(file: CapacityFile, setting: Setting, device: str, measure: Callable[[], Capacity],
             wait: Callable[[], None]) -> Capacity:
    while True:
        # A device's name is known on its machine alone, and the folder may be shared.
        with file.claim(f'{platform.node()} {device}') as mine:
            if mine:
                capacity = measure()
                try:
                    file.add(setting, capacity)
                except OSError as error:
                    logger.warning('%s cannot be written, the next start measures again: %s',
                                   file.path, error)
                return capacity
        wait()


def _parse(row: Mapping[str, Any]) -> tuple[Setting, Capacity]:
    setting = Setting(str(row['sizes']), float(row['slo']), float(row['rate']),
                      int(row['max_batch']), str(row['engine']), str(row['late']))
    check_range('rate', setting.rate, 1e-6, 1e6)
    p99 = row['p99']
    return setting, Capacity(int(row['robots']), float(row['attainment']),
                             None if p99 is None else float(p99), float(row['scaled_from']))

