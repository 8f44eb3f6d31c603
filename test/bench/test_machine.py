# SPDX-License-Identifier: Apache-2.0
"""What figures depend on."""

import json

from robion_ros.bench.machine import describe_machine, format_machine


def test_the_machine_is_described_without_a_gpu() -> None:
    machine = describe_machine(['cpu'])
    json.dumps(machine, allow_nan=False)
    assert machine['gpus'] == {} and machine['cpus'] >= 1 and len(machine['code']) == 16
    assert 'no GPU' in format_machine(machine) and machine['torch'] in format_machine(machine)
