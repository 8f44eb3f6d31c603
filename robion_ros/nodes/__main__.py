# SPDX-License-Identifier: Apache-2.0
"""
Run a node by its name: `python -m robion_ros.nodes server --ros-args ...`.

A signal that comes while its modules are loaded, which takes seconds, ends the process quietly;
a fault ends it at once, as threads that hang would keep the interpreter from its end.
"""

from importlib import import_module
import os
import signal
import sys


def main(name: str) -> int:
    """Run the node called name (server, manager, robot or traffic); return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))  # Nothing is held yet.
    code: int = import_module(f'robion_ros.nodes.{name}').main()
    # The interpreter gives signals their deadly default back while it unloads torch.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == '__main__':
    raise SystemExit(main(sys.argv.pop(1)))
