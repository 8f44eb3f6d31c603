# SPDX-License-Identifier: Apache-2.0
"""
Which of the servers that are alike plays which role, so that the fewest robots move.

Knows nothing of what makes a plan good otherwise.
"""

from collections.abc import Sequence

from ortools.graph.python.linear_sum_assignment import SimpleLinearSumAssignment

from robion_ros.manager.group import Group, Rows


def relabel(group: Group, rows: Rows) -> Rows:
    """Swap the rows of servers that are alike so that the most running robots can stay."""
    relabelled = list(rows)
    for servers in group.alike:
        for server, role in zip(servers, _cast(group, servers, rows), strict=True):
            relabelled[server] = rows[role]
    return relabelled


def _cast(group: Group, servers: Sequence[int], rows: Rows) -> list[int]:
    """Return for each of servers the one whose role in the plan it plays."""
    matching = SimpleLinearSumAssignment()
    for line, server in enumerate(servers):
        for column, role in enumerate(servers):
            stay = sum(map(min, group.running[server], rows[role]))
            # Among equals a server keeps its own role: less than one robot in all servers.
            gain = stay * (len(servers) + 1) + (line == column)
            matching.add_arc_with_cost(line, column, -gain)
    matching.solve()
    return [servers[matching.right_mate(line)] for line in range(len(servers))]
