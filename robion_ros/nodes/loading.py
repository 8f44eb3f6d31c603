# SPDX-License-Identifier: Apache-2.0
"""
From a server's part of the factory file to models that are ready, and how many robots they take.

All of it may take minutes: weights, graphs, and where no capacity is written down or known from
before, traffic of made-up robots. Knows neither topics nor the node's life cycle.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep

from robion_ros.bench.prepared import Prepared as Measurable
from robion_ros.bench.sustained import capacity_file, measure_capacity
from robion_ros.config import FactoryConfig
from robion_ros.engine.capacities import Capacity, find, make_setting, obtain
from robion_ros.engine.device import Device, open_device, Prepared
from robion_ros.engine.memory import (
    CONTEXT,
    find_excess,
    make_placement,
    make_share,
    memory_file,
    outline_models,
    Outlines,
    show,
)
from robion_ros.models.checkpoint import log_progress
from robion_ros.models.memory import weight_bytes
from robion_ros.models.protocol import Model
from robion_ros.models.registry import load, Outline
from robion_ros.words import count

LINE_PERIOD = 5.0
"""Between two lines of the log about one measurement, s."""
LOOK_PERIOD = 0.5
"""How often it is looked whether another process has measured, s."""

Say = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Loaded:
    """Models on a device."""

    device: Device
    models: Mapping[str, Model]
    """As they were loaded."""
    ready: Prepared
    capacities: Mapping[str, int]
    """Most robots of each model that the device sustains; 0: not even one."""


class Loading:
    """One loading of a server's models."""

    def __init__(self, factory: FactoryConfig, name: str, beside: Iterable[str], info: Say,
                 warn: Say, check: Callable[[], None], outlines: Outlines | None = None) -> None:
        """
        Be about to load the models of a server.

        beside are servers on the same device of the same machine; check is called now and then,
        and what it raises ends all. outlines are those of models that are held; it grows.
        """
        self._factory, self._name, self._beside = factory, name, tuple(beside)
        self._server = factory.servers[name]
        self._info, self._warn, self._check = info, warn, check
        self._outlines: Outlines = {} if outlines is None else outlines
        self._waiting = False

    def run(self) -> Loaded:
        """Load, prepare and measure; raise ValueError where something is not as it should be."""
        device = open_device(self._server.device)  # What is wrong with it is said before loading.
        outlines = outline_models(self._factory, self._name, self._outlines)
        self._check_memory(device, outlines)
        models = {model: self._load(model) for model in self._server.models}
        ready = device.prepare(models, self._server.max_batch, self._server.engine == 'lockstep')
        self._keep_memory(device, outlines)
        return Loaded(device, models, ready, self._find_capacities(device, models, ready,
                                                                   outlines))

    def load_more(self, device: Device, name: str) -> tuple[Model, int]:
        """
        Load one of the server's models beside the others, which it holds; and its capacity.

        Raise ValueError where something is not as it should be, and where the capacity is
        neither written down nor known from before, since others are served meanwhile.
        """
        outlines = outline_models(self._factory, self._name, self._outlines)
        self._check_memory(device, outlines, name)
        capacity = self._factory.capacity(self._name, name)
        if not capacity:
            setting = make_setting(outlines[name].sizes, self._factory.models[name],
                                   self._server)
            known = find(capacity_file(device).read(), setting)
            if known is None:
                raise ValueError(f'models.{name}.capacity: is not in the file, was not measured '
                                 "before, and cannot be while others are served: run 'robion "
                                 "capacity' when the device is free, or write it down")
            self._say(name, known)
            capacity = known.robots
        return self._load(name), capacity

    def _load(self, name: str) -> Model:
        """Read a model's weights."""
        start, log = monotonic(), log_progress(name)

        def progress(part: float, left: float) -> None:
            self._check()
            log(part, left)
        try:
            model = load(self._factory.models[name], self._server.device, progress)
        except ValueError as error:
            raise ValueError(f'models.{name}: {error}') from error
        self._check()
        self._info(f'{name}: loaded in {monotonic() - start:.1f} s, '
                   f'{show(weight_bytes(model))} of weights')
        return model

    def _check_memory(self, device: Device, outlines: Mapping[str, Outline],
                      more: str = '') -> None:
        """
        Raise ValueError where the device has too little memory; of a CPU only warn.

        more is one of the models, if the others are loaded already.
        """
        memory = device.memory()
        if memory is None:
            return
        known = memory_file(device).read()
        shares = [make_share(self._factory, self._name, outlines, known)]
        for other in self._beside:
            try:
                shares.append(make_share(self._factory, other,
                                         outline_models(self._factory, other, self._outlines),
                                         known))
            except (ImportError, ValueError):
                continue  # It cannot load, and says so itself.
        problem = find_excess(device.name, shares, memory, '' if more else self._name)
        if more and not problem and outlines[more].weights > memory.free:
            problem = (f'{device.name} has {show(memory.free)} of memory left, the weights of '
                       f'{more} take {show(outlines[more].weights)}: unload another model first')
        if problem and device.name != 'cpu':
            raise ValueError(problem)
        if problem:
            self._warn(problem)

    def _keep_memory(self, device: Device, outlines: Mapping[str, Outline]) -> None:
        """Keep what graphs and buffers took, for the next check."""
        taken = device.taken()
        if taken is None:
            return
        beside = max(0, taken - sum(one.weights for one in outlines.values()))
        placement = make_placement(outlines.values(), self._server.max_batch, self._server.engine)
        try:
            file = memory_file(device)
            # The least: a process that loads again may hold some of what it had before.
            if beside < file.read().get(placement, beside + 1):
                file.add(placement, beside)
        except OSError as error:
            self._warn(f'the memory that was taken cannot be kept: {error}')
        self._info(f'{device.name}: {show(taken + CONTEXT)} in use, {show(beside)} of it for '
                   'graphs and buffers')

    def _find_capacities(self, device: Device, models: Mapping[str, Model], ready: Prepared,
                         outlines: Mapping[str, Outline]) -> Mapping[str, int]:
        """Take capacities from the factory file, from earlier, or from a measurement."""
        given = {model: self._factory.capacity(self._name, model) for model in models}
        configs = {model: self._factory.models[model] for model in models}
        wanted = {model: make_setting(outlines[model].sizes, configs[model], self._server)
                  for model, capacity in given.items() if not capacity}
        if not wanted:
            return given
        here = Measurable(configs, device, self._server.max_batch, models, ready.models,
                                 ready.times)
        found = obtain(capacity_file(device), wanted, device.name, partial(self._measure, here),
                       self._wait)
        for model, capacity in found.items():
            self._say(model, capacity)
        return given | {model: capacity.robots for model, capacity in found.items()}

    def _measure(self, here: Measurable, model: str) -> Capacity:
        self._info(f'{model}: measuring how many robots {here.device.name} sustains, once for '
                   'such a device; a capacity in the factory file spares it')
        heard = monotonic()

        def report(part: float, left: float) -> None:
            nonlocal heard
            if monotonic() - heard >= LINE_PERIOD:
                heard = monotonic()
                self._info(f'{model}: measuring, {part:.0%}, about {left:.0f} s left')
        return measure_capacity(here, self._server, model, self._check, report)

    def _wait(self) -> None:
        if not self._waiting:
            self._info('waiting for another process that measures the same, or on this device')
            self._waiting = True
        self._check()
        sleep(LOOK_PERIOD)

    def _say(self, model: str, capacity: Capacity) -> None:
        config = self._factory.models[model]
        latency = '' if capacity.p99 is None else f', p99 {capacity.p99 * 1e3:.1f} ms'
        at = f'{capacity.scaled_from or config.rate:g} Hz and {config.slo * 1e3:g} ms'
        scaled = f', scaled to {config.rate:g} Hz' if capacity.scaled_from else ''
        self._info(f'{model}: up to {count(capacity.robots, "robot")}, measured at {at}{scaled} '
                   f'({capacity.attainment:.2%} in time{latency})')
        if not capacity.robots:
            self._warn(f'{model}: not even one robot is served in time: allow it a longer slo, a '
                       'lower rate, or place it on a faster device')
