# SPDX-License-Identifier: Apache-2.0
"""
The `robion` command.

Imports nothing before it is ready for Ctrl-C, and knows neither arguments nor commands.
"""


def main() -> int:
    """Run `robion` with the arguments of this process; return the exit code."""
    try:
        from robion_ros.commands.arguments import run
        return run()
    except KeyboardInterrupt:  # Where a command runs for long, it does not come to this.
        return 130
