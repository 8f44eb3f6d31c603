# SPDX-License-Identifier: Apache-2.0
"""
What kind of device this is, and which programs drive it: what figures measured here are of.

Knows nothing of what is measured.
"""

from collections.abc import Mapping
import os
from pathlib import Path
import platform

import torch


def describe_gpu(device: torch.device) -> Mapping[str, str]:
    """Return the kind of a GPU and what drives it."""
    driver = Path('/proc/driver/nvidia/version')
    return {'gpu': torch.cuda.get_device_name(device),
            'driver': driver.read_text().splitlines()[0] if driver.exists() else 'unknown',
            'torch': str(torch.__version__), 'cuda': str(torch.version.cuda)}


def describe_cpu() -> Mapping[str, str]:
    """Return the kind of the processor and what drives it."""
    return {'cpu': cpu_name(), 'cores': str(len(os.sched_getaffinity(0))),
            'torch': str(torch.__version__)}


def cpu_name() -> str:
    """Return the name of the processor, or its kind where the system does not tell."""
    info = Path('/proc/cpuinfo')
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.machine()
