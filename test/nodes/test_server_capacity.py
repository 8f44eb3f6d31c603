# SPDX-License-Identifier: Apache-2.0
"""A factory without figures: the server measures, says what it found, and the manager plans."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
import subprocess
import sys
from time import sleep
from typing import Any

import pytest

from robion_ros.bench.sustained import capacity_file, measure_capacity
from robion_ros.engine.device import open_device
from robion_ros.msg import Assignment, ServerStatus
from robion_ros.nodes import loading, qos

pytestmark = pytest.mark.ros

VLM = 0.02
"""What the stage of a batch of two takes at the least, s: 100 requests per second."""
RATE = 20.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measure with few requests, and keep what is found to this test."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setattr(loading, 'measure_capacity',
                        partial(measure_capacity, epochs=1, seconds=0.5))


@pytest.fixture
def slow(fakes: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake model's VLM stage take its time."""
    load = loading.load

    def load_slow(*arguments: Any) -> Any:
        model = load(*arguments)
        vlm = model.vlm
        model.vlm = lambda inputs: (sleep(VLM), vlm(inputs))[1]  # type: ignore[method-assign]
        return model
    monkeypatch.setattr(loading, 'load', load_slow)


@pytest.mark.usefixtures('quick', 'slow')
def test_factory_without_capacities_starts_measures_and_plans(
        world: Any, write_factory: Callable[..., Path],
        monkeypatch: pytest.MonkeyPatch) -> None:
    world.config = write_factory('fake', ('    capacity: 4\n', ''),
                                 ('rate: 100.0', f'rate: {RATE}'), ('slo: 5.0', 'slo: 1.0'),
                                 ('servers:', 'robots: {arm: 1}\nservers:'))
    world.server()
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.ACTIVE)
    status = world.statuses['server_0']
    assert list(status.models) == ['arm', 'crane']
    [found] = capacity_file(open_device('cpu')).read().values()
    assert list(status.capacities) == [found.robots] * 2
    # A busy machine may sustain fewer than the stage's duration allows, but not more.
    assert found.robots <= 2 / VLM / RATE

    # The next start reads it, and is no slower.
    monkeypatch.setattr(loading, 'measure_capacity', lambda *_: pytest.fail('measured again'))
    for change in ('deactivate', 'cleanup', 'configure', 'activate'):
        assert world.change(change)
    world.until(lambda: world.statuses['server_0'].state == ServerStatus.ACTIVE)
    assert list(world.statuses['server_0'].capacities) == [found.robots] * 2

    # A manager loads no model, and its process does not know the fake one.
    config = world.config.with_name('manager.yaml')
    config.write_text(world.config.read_text().replace('fake', 'tiny'))
    heard: list[Assignment] = []
    world.node.create_subscription(Assignment, 'manager/assignment', heard.append,
                                   qos.LATCHED_QOS)
    manager = subprocess.Popen([sys.executable, '-P', '-m', 'robion_ros.nodes', 'manager',
                                '--ros-args', '-r', '__node:=manager', '-p',
                                f'config:="{config}"'])
    try:
        world.until(lambda: heard, 'planned')
    finally:
        manager.terminate()
        manager.wait()
    assert [(robot.robot, robot.server) for robot in heard[-1].robots] == [
        ('arm_1', 'server_0' if found.robots else '')]
