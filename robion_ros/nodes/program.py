# SPDX-License-Identifier: Apache-2.0
"""What a node offers to the process that runs it. Knows no node in particular."""

from typing import Protocol


class Program(Protocol):
    """A node that is the whole of a process."""

    exit_code: int
    """Exit code of the process once the node has ended."""

    def close(self) -> None:
        """End threads and free what is held; called once, after the last callback."""

    def destroy_node(self) -> None:
        """As of rclpy's Node."""
