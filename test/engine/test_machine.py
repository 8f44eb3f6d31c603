# SPDX-License-Identifier: Apache-2.0
"""What a machine is, as far as figures depend on it."""

import pytest

from robion_ros.engine.device import open_device
from robion_ros.engine.machine import describe_cpu


def test_cpu_says_what_times_depend_on() -> None:
    assert describe_cpu() == open_device('cpu').machine
    assert set(describe_cpu()) == {'cpu', 'cores', 'torch'} and all(describe_cpu().values())


@pytest.mark.gpu
def test_gpu_says_what_times_depend_on() -> None:
    machine = open_device('cuda').machine
    assert set(machine) == {'gpu', 'driver', 'torch', 'cuda'} and all(machine.values())
