# SPDX-License-Identifier: Apache-2.0
"""
Plans that are made in one go: where better ones begin, and what they are compared with.

None overloads a server; one may leave robots out. Knows no search.
"""

from robion_ros.manager.group import Group, Rows


def pack(group: Group, rows: Rows | None = None) -> Rows:
    """
    Give each model, those hardest to place first, to the servers where it meets the fewest others.

    rows is a plan to complete, which may be one for other robots: what is too much of it goes.
    """
    packed, free = _trim(group, rows)
    left = [count - served for count, served
            in zip(group.robots, group.served(packed), strict=True)]
    for model in _order(group):
        while left[model]:
            fits = {server: min(left[model], free[server] // group.weights[server][model])
                    for server in group.hosts[model]}
            server = min(fits, key=lambda server: (
                not fits[server], sum(packed[server]) - packed[server][model], -fits[server]))
            if not fits[server]:
                break
            packed[server][model] += fits[server]
            free[server] -= fits[server] * group.weights[server][model]
            left[model] -= fits[server]
    return packed


def fill(group: Group) -> Rows:
    """Give the models one by one to the servers in their order, each filled before the next."""
    rows, free = _trim(group, None)
    for model, left in enumerate(group.robots):
        for server in group.hosts[model]:
            count = min(left, free[server] // group.weights[server][model])
            rows[server][model] = count
            free[server] -= count * group.weights[server][model]
            left -= count
    return rows


def spread(group: Group) -> Rows:
    """Give each robot, those hardest to place first, to the server that is loaded least."""
    rows, free = _trim(group, None)
    for model in _order(group):
        for _ in range(group.robots[model]):
            fitting = [server for server in group.hosts[model]
                       if free[server] >= group.weights[server][model]]
            if not fitting:
                break
            server = max(fitting, key=lambda server: (
                free[server] - group.weights[server][model]) / group.room[server])
            rows[server][model] += 1
            free[server] -= group.weights[server][model]
    return rows


def separate(group: Group) -> Rows:
    """Give each server to one model, first where that serves the most robots."""
    rows, _ = _trim(group, None)
    left, unused = list(group.robots), list(range(len(group.servers)))
    while unused:
        count, server, model = max(
            (min(left[model], capacity), -server, -model) for server in unused
            for model, capacity in enumerate(group.capacities[server]))
        rows[-server][-model] = count
        left[-model] -= count
        unused.remove(-server)
    return rows


def _trim(group: Group, rows: Rows | None) -> tuple[Rows, list[int]]:
    """Return what of a plan fits, and the free parts of each server."""
    trimmed, free = [[0] * len(group.models) for _ in group.servers], list(group.room)
    left = list(group.robots)
    for server, row in enumerate(rows or ()):
        # What there is most of goes first, so that a model's robots stay together.
        for model in sorted(range(len(row)), key=lambda model: -row[model]):
            weight = group.weights[server][model]
            count = min(row[model], left[model], free[server] // weight if weight else 0)
            trimmed[server][model] = count
            free[server] -= count * weight
            left[model] -= count
    return trimmed, free


def _order(group: Group) -> list[int]:
    """Return the models, those that are hardest to place first."""
    return sorted(range(len(group.models)), key=lambda model: (
        -group.priorities[model], len(group.hosts[model]), -group.need(model)))
