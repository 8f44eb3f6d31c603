# SPDX-License-Identifier: Apache-2.0
"""
What figures depend on besides the settings: the machine, its programs, this code.

Knows nothing of what is measured.
"""

from collections.abc import Sequence
from datetime import datetime, UTC
import os
from pathlib import Path
import platform
import subprocess
from typing import Any

import numpy as np
import torch

from robion_ros.engine.machine import cpu_name
from robion_ros.engine.profile import code_version

PACKAGE = Path(__file__).parents[1]


def describe_machine(devices: Sequence[str]) -> dict[str, Any]:
    """Return the machine as what JSON can hold, with the GPUs among devices."""
    folders = sorted({PACKAGE, *(path.parent for path in PACKAGE.rglob('*.py'))})
    return {
        'time': datetime.now(UTC).isoformat(timespec='seconds'),
        'gpus': {device: describe_gpu(device) for device in devices
                 if torch.device(device).type == 'cuda'},
        'driver': driver_version(),
        'cuda': torch.version.cuda,
        'torch': str(torch.__version__),
        'numpy': np.__version__,
        'python': platform.python_version(),
        'kernel': platform.release(),
        'cpu': cpu_name(),
        'cpus': len(os.sched_getaffinity(0)),
        'code': code_version(*folders),
    }


def describe_gpu(device: str) -> dict[str, Any]:
    """Return what kind of GPU a device is."""
    found = torch.cuda.get_device_properties(device)
    return {'name': found.name, 'sms': found.multi_processor_count,
            'memory_gb': round(found.total_memory / 1e9, 1),
            'capability': f'{found.major}.{found.minor}'}


def driver_version() -> str | None:
    """Return the version of the GPU's driver, if there is one that tells."""
    try:
        asked = subprocess.run(
            ['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader'],
            capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.splitlines()[0].strip() if asked.returncode == 0 and asked.stdout else None


def format_machine(machine: dict[str, Any]) -> str:
    """Return a machine as one line."""
    gpus = sorted({gpu['name'] for gpu in machine['gpus'].values()})
    return (f'{", ".join(gpus) or "no GPU"}; {machine["cpu"]}, {machine["cpus"]} CPUs; '
            f'torch {machine["torch"]}, Python {machine["python"]}, code {machine["code"]}')
