# SPDX-License-Identifier: Apache-2.0
"""
Made-up factories for the manager to plan: of a size and kind, drawn from a seed.

Knows nothing of how plans are found. The same arguments make the same factory everywhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from random import Random

from robion_ros.bench.settings import Size
from robion_ros.manager.traffic import TrafficPlan, TrafficProblem

FILL = 0.95
"""Load at which an even split of the robots fills the fullest server, at most."""
CAPACITIES = 10, 14, 18, 22, 28, 36, 46, 60
"""How many robots of a model a server sustains, in relation to each other."""
SPEEDS = 0.5, 0.75, 1.0, 1.5
"""Of servers that differ."""
GROUP = 4
"""Servers of a group."""
LOADED = 6
"""Most models of a server where it has not loaded all."""
UNLIKE = 0.15
"""By how much capacities differ from those above."""


def make_factory(size: Size, kind: str, seed: int) -> TrafficProblem:
    """Draw a factory whose robots can all be served, but not with much room left."""
    random = Random(f'{size} {kind} {seed}')
    models = [f'model_{index:02}' for index in range(size.models)]
    servers = [f'server_{index:02}' for index in range(size.servers)]
    hosts = _host(random, kind, models, servers)
    drawn = random.choices(models, [random.uniform(0.3, 1.7) for _ in models],
                           k=size.robots - size.models)
    more = Counter(drawn)
    robots = {model: 1 + more[model] for model in models}
    base = {model: random.choice(CAPACITIES) * _vary(random) for model in models}
    speed = {server: random.choice(SPEEDS) if kind == 'heterogeneous' else 1.0
             for server in servers}
    figures = {(server, model): base[model] * speed[server]
               * (_vary(random) if kind == 'heterogeneous' else 1.0)
               for server in servers for model in hosts[server]}
    scale = _split_evenly(robots, hosts, figures) / FILL
    return TrafficProblem(robots, hosts, {place: ceil(figure * scale)
                                          for place, figure in figures.items()})


def _host(random: Random, kind: str, models: Sequence[str],
          servers: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Draw which models each server has loaded."""
    if kind == 'groups':
        groups = max(2, len(servers) // GROUP)
        return {server: tuple(models[index % groups::groups])
                for index, server in enumerate(servers)}
    if kind != 'partial':
        return {server: tuple(models) for server in servers}
    count = max(2, min(LOADED, len(models) // 3))
    loaded = {server: set(random.sample(models, count)) for server in servers}
    for model in models:
        missing = [server for server in servers if model not in loaded[server]]
        for server in random.sample(missing, max(0, 2 - len(servers) + len(missing))):
            loaded[server].add(model)
    return {server: tuple(sorted(row)) for server, row in loaded.items()}


def _vary(random: Random) -> float:
    return random.uniform(1 - UNLIKE, 1 + UNLIKE)


def _split_evenly(robots: Mapping[str, int], hosts: Mapping[str, Sequence[str]],
                  figures: Mapping[tuple[str, str], float]) -> float:
    """Give each robot to the server with the least load; return the highest load."""
    load = dict.fromkeys(hosts, 0.0)
    where = {model: [server for server in hosts if model in hosts[server]] for model in robots}
    for model in sorted(robots, key=lambda model: len(where[model])):
        for _ in range(robots[model]):
            server = min(where[model], key=lambda server: load[server]
                         + 1 / figures[server, model])
            load[server] += 1 / figures[server, model]
    return max(load.values())


def change(problem: TrafficProblem, plan: TrafficPlan, random: Random) -> TrafficProblem:
    """Let a robot of some model come or go; the others run as planned."""
    model = random.choice(sorted(problem.robots))
    more = random.choice((-1, 1)) if problem.robots[model] > 1 else 1
    running = dict(plan.robots)
    if more < 0:
        place = random.choice([place for place in running if place[1] == model])
        running[place] -= 1
    return TrafficProblem({**problem.robots, model: problem.robots[model] + more},
                          problem.hosts, problem.capacities,
                          {place: count for place, count in running.items() if count})
