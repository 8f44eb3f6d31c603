# SPDX-License-Identifier: Apache-2.0
"""
The `robion` command.

Imports nothing slow before it is ready for Ctrl-C, and knows neither arguments nor commands.
"""

from io import TextIOWrapper
import os
import sys


def main() -> int:
    """Run `robion` with the arguments of this process; return the exit code."""
    if isinstance(sys.stdout, TextIOWrapper):  # Names may hold what a terminal cannot show.
        sys.stdout.reconfigure(errors='backslashreplace')
    try:
        from robion_ros.commands.arguments import run
        try:
            return run()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # Where a command runs for long, it does not come to this.
        return 130
    except BrokenPipeError:  # Nobody reads any more, as with `| head`.
        # Python flushes what is left once more and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == '__main__':
    sys.exit(main())
