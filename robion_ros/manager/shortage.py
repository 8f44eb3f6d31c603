# SPDX-License-Identifier: Apache-2.0
"""
Which constraint robots break that cannot all be served, by how much, and the mend: in words.

Knows nothing of how that is found out.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from robion_ros.words import count

if TYPE_CHECKING:
    from robion_ros.manager.group import Counts
    from robion_ros.manager.traffic import TrafficProblem

SHOWN = 8
"""Names that are listed before it becomes '...'."""


def describe_homeless(over: Mapping[str, int], hosts: Mapping[str, tuple[str, ...]]) -> str:
    """Say which models no server has loaded, and the mend."""
    robots = ', '.join(f'{count(left, "robot")} of {name}' for name, left in sorted(over.items()))
    return (f'no server has loaded the model of {robots} (servers: {_names(hosts)}); add it to '
            'the models of a server, or start one that has it')


def describe_over(over: Mapping[str, int], problem: 'TrafficProblem', plan: 'Counts') -> str:
    """Say which robots do not fit on which servers, by how much, and the mend."""
    parts = []
    for name, left in sorted(over.items()):
        room = [max(0, problem.capacities[server, name])
                for server, models in problem.hosts.items() if name in models]
        parts.append(f'{count(left, "robot")} of {name} ({problem.robots[name]} in all; servers '
                     f'that have loaded it: {len(room)}, with room for {sum(room)} and nothing '
                     'else)')
    return (f'over by {", ".join(parts)}{_describe_need(over, problem, plan)}. Take these robots '
            'away, load their model on another server, or add a server')


def _describe_need(over: Mapping[str, int], problem: 'TrafficProblem', plan: 'Counts') -> str:
    """Say how many servers the models need that compete for those that are full."""
    places = problem.places
    models: set[str] = set()
    more = {name for name in over if any(name in row for row in places.values())}
    while more - models:
        models |= more
        servers = [server for server, row in places.items() if row.keys() & models]
        more = {name for (server, name) in plan if server in servers}
    if not models:
        return ''
    need = sum(problem.robots[name] / max(places[server][name] for server in servers
                                          if name in places[server]) for name in models)
    text = (f': load of {_names(sorted(models))}: at least {need:.4g}; room on {_names(servers)}, '
            f'where alone it can go: {len(servers)}')
    # Capacities may differ between servers, and robots are whole.
    return text if need > len(servers) else f'{text}, but not for whole robots'


def _names(names: object) -> str:
    listed = list(names)  # type: ignore[call-overload]
    return ', '.join(listed[:SHOWN] + ['...'] * (len(listed) > SHOWN)) or 'none'
