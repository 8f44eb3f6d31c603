# SPDX-License-Identifier: Apache-2.0
"""
`robion plan`: which server would answer which robot, without starting anything.

Plans as the manager does when every server is there. Knows neither ROS nor a running factory.
"""

import argparse
from collections.abc import Mapping
from fractions import Fraction
import json
from pathlib import Path
import sys
from typing import Any

from robion_ros.commands.plan_svg import draw_plan
from robion_ros.commands.table import format_table
from robion_ros.config import FactoryConfig
from robion_ros.factory_file import load
from robion_ros.manager.errors import Unserved
from robion_ros.manager.planner import FactoryPlan, make_plan, place_robots


def run(arguments: argparse.Namespace) -> int:
    """Print and draw the plan of a factory file, or of the most robots that can be served."""
    factory = load(arguments.factory)
    problem = ''
    try:
        plan = plan_factory(factory)
    except Unserved as error:
        problem = str(error)
        plan = place_robots(error.fitting, error.best, list_robots(factory), {})
    described = describe(factory, plan)
    print('\n'.join(format_plan(described)))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(described, indent=2) + '\n')
    if arguments.svg:
        Path(arguments.svg).write_text(draw_plan(described), encoding='utf-8')
    if problem:
        print(f'robion plan: {problem}', file=sys.stderr)
    return 1 if problem else 0


def plan_factory(factory: FactoryConfig) -> FactoryPlan:
    """Plan the robots of a factory file for all its servers; raise errors.PlanError."""
    hosts = {name: server.models for name, server in factory.servers.items()}
    return make_plan(factory, list_robots(factory), hosts, {})


def list_robots(factory: FactoryConfig) -> dict[str, str]:
    """Return the model of each robot of a factory file."""
    return {robot: model for model, robots in factory.robots.items() for robot in robots}


def describe(factory: FactoryConfig, plan: FactoryPlan) -> Mapping[str, Any]:
    """Return a plan as what JSON can hold."""
    servers = {}
    for name, server in factory.servers.items():
        robots = {model: [robot for robot, place in plan.places.items()
                          if place == (model, name)] for model in server.models}
        load = sum((Fraction(len(names), factory.capacity(name, model))
                    for model, names in robots.items()), Fraction())
        servers[name] = {'load': str(load), 'robots': robots}
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
    rows = [(name, server['load'],
             *(len(server['robots'][model]) if model in server['robots'] else '-'
               for model in models),
             ' '.join(robot for robots in server['robots'].values() for robot in robots))
            for name, server in servers.items()]
    quality = ('optimal' if described['optimal']
               else f'not proven optimal, at least {described["bound"]}')
    left = ' '.join(robot for robots in described['unserved'].values() for robot in robots)
    return [*format_table(('server', 'load', *models, 'robots'), rows), '',
            *([f'not served: {left}'] if left else []),
            f'objective {described["objective"]} ({quality}), '
            f'solved in {described["solve_ms"]:.0f} ms']
