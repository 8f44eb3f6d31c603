# SPDX-License-Identifier: Apache-2.0
"""
`robion plan`: which server would answer which robot, without starting anything.

Plans as the manager does when every server is there. Knows neither ROS nor a running factory.
"""

import argparse
from collections.abc import Mapping
from fractions import Fraction
import json
import os
from pathlib import Path
import sys
from typing import Any

from robion_ros.commands.placement import format_memory
from robion_ros.commands.plan_svg import draw_plan
from robion_ros.commands.table import format_table
from robion_ros.config import FactoryConfig
from robion_ros.factory_file import load
from robion_ros.manager.errors import Unserved
from robion_ros.manager.group import Counts
from robion_ros.manager.planner import FactoryPlan, make_plan, NONE, place_robots


def run(arguments: argparse.Namespace) -> int:
    """Print and draw the plan of a factory file, or of the most robots that can be served."""
    factory = load(arguments.factory)
    measured = measured_capacities(factory, arguments.factory)
    problem = ''
    try:
        plan = plan_factory(factory, measured)
    except Unserved as error:
        problem = str(error)
        plan = place_robots(error.fitting, error.best, list_robots(factory), {})
    described = describe(factory, plan, measured)
    print('\n'.join([*format_plan(described), '', *format_memory(factory)]))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(described, indent=2) + '\n')
    if arguments.svg:
        Path(arguments.svg).write_text(draw_plan(described), encoding='utf-8')
    if problem:
        print(f'robion plan: {problem}', file=sys.stderr)
    return 1 if problem else 0


def measured_capacities(factory: FactoryConfig, path: str | os.PathLike[str]) -> Counts:
    """Return capacities that the file at path does not give; raise FieldError without one."""
    if all(factory.capacity(name, model) for name, server in factory.servers.items()
           for model in server.models):
        return {}
    from robion_ros.commands.capacities import look_up  # It loads torch.
    return {place: capacity.robots for place, capacity in look_up(factory, path).items()}


def plan_factory(factory: FactoryConfig, measured: Counts = NONE) -> FactoryPlan:
    """
    Plan the robots of a factory file for all its servers; raise errors.PlanError.

    measured are the capacities that the file does not give.
    """
    hosts = {name: server.models for name, server in factory.servers.items()}
    return make_plan(factory, list_robots(factory), hosts, {}, measured)


def list_robots(factory: FactoryConfig) -> dict[str, str]:
    """Return the model of each robot of a factory file."""
    return {robot: model for model, robots in factory.robots.items() for robot in robots}


def describe(factory: FactoryConfig, plan: FactoryPlan,
             measured: Counts = NONE) -> Mapping[str, Any]:
    """Return a plan as what JSON can hold."""
    servers = {}
    for name, server in factory.servers.items():
        robots = {model: [robot for robot, place in plan.places.items()
                          if place == (model, name)] for model in server.models}
        capacities = {model: factory.capacity(name, model) or measured[name, model]
                      for model in server.models}
        load = sum((Fraction(len(names), capacities[model])
                    for model, names in robots.items() if names), Fraction())
        servers[name] = {
            'load': str(load), 'robots': robots, 'capacities': capacities,
            'measured': [model for model in server.models if not factory.capacity(name, model)]}
    traffic = plan.traffic
    return {'servers': servers,
            'unserved': {model: left for model, robots in factory.robots.items()
                         if (left := [robot for robot in robots if robot not in plan.places])},
            'objective': traffic.objective, 'optimal': traffic.optimal,
            'bound': traffic.bound, 'solve_ms': round(traffic.solve_s * 1e3, 3)}


def format_plan(described: Mapping[str, Any]) -> list[str]:
    """Return a described plan as a table: servers by models."""
    servers = described['servers']
    models = list(dict.fromkeys(
        model for server in servers.values() for model in server['robots']))
    rows = [(name, f'{server["load"]} = {100 * float(Fraction(server["load"])):.0f} %',
             *(len(server['robots'][model]) if model in server['robots'] else '-'
               for model in models),
             ' '.join(robot for robots in server['robots'].values() for robot in robots))
            for name, server in servers.items()]
    quality = ('optimal' if described['optimal']
               else f'not proven optimal, at least {described["bound"]}')
    measured = [f'{server["capacities"][model]} of {model} on {name}'
                for name, server in servers.items() for model in server['measured']]
    left = ' '.join(robot for robots in described['unserved'].values() for robot in robots)
    empty = not left and not any(names for server in servers.values()
                                 for names in server['robots'].values())
    return [*format_table(('server', 'load', *models, 'robots'), rows), '',
            *(['the file has no robots: the manager begins without any'] if empty else []),
            *([f'not served: {left}'] if left else []),
            *([f'capacities as measured: {", ".join(measured)}'] if measured else []),
            f'objective {described["objective"]} ({quality}), '
            f'solved in {described["solve_ms"]:.0f} ms']
