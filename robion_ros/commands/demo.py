# SPDX-License-Identifier: Apache-2.0
"""
`robion demo`: a whole factory on this machine, its robots moved under load, and a verdict.

Ctrl-C ends it at any time. Knows how a demo goes; what is started stands in processes.py, what
the figures mean in demo_summary.py.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
import json
import os
from pathlib import Path
import sys
from tempfile import TemporaryDirectory
from typing import Any

from robion_ros.commands.demo_factory import resize, swap
from robion_ros.commands.demo_run import DemoRun, Interrupted, NotServed, Script
from robion_ros.commands.domain import claim_domain
from robion_ros.commands.live import Screen
from robion_ros.commands.plan import measured_capacities, plan_factory
from robion_ros.commands.stop import Stop
from robion_ros.demo_summary import describe_machine, find_faults, format_summary, summarize
from robion_ros.factory_file import dump, load
from robion_ros.manager.errors import PlanError
from robion_ros.nodes.observer import Observer
from robion_ros.processes import environment, example_config, factory_processes
from robion_ros.supervisor import Supervisor
from robion_ros.words import count


def run(arguments: argparse.Namespace) -> int:
    """Run a demo; return 0 if its figures are good."""
    with TemporaryDirectory(prefix='robion_demo_') as folder:
        script = prepare(arguments, Path(folder))
        domain = claim_domain(os.environ, arguments.domain)
        os.environ.update(environment())
        with Stop() as stop, Screen(sys.stdout) as screen:
            screen.say(f'{count(len(script.plan.places), "robot")} on '
                       f'{count(len(script.factory.servers), "server")}, in '
                       f'ROS_DOMAIN_ID={domain}')
            try:
                summary, faults = play(script, screen, stop)
            except Interrupted:
                screen.say('interrupted; everything has ended')
                return 130
            except NotServed as error:
                summary, faults = {}, [str(error)]
            if faults:
                screen.keep_notes()
            screen.say('\n'.join(format_summary(summary, faults)))
    if arguments.json:
        text = json.dumps({**summary, 'faults': faults, 'machine': describe_machine()}, indent=2)
        Path(arguments.json).write_text(f'{text}\n')
    return 1 if faults else 0


def prepare(arguments: argparse.Namespace, folder: Path) -> Script:
    """Read the factory, write one with other robots if asked for, and check that they fit."""
    path = Path(arguments.config or example_config())
    factory = load(path)
    if arguments.robots is not None:
        factory = resize(factory, arguments.robots)
        path = folder / 'factory.yaml'
        path.write_text(dump(factory))
    populations = swap(factory)
    measured = measured_capacities(factory, path)
    plan = plan_factory(factory, measured)
    try:
        plan_factory(replace(factory, robots=populations), measured)
    except PlanError as error:
        raise PlanError(f'after the rebalance half way: {error}') from error
    return Script(factory, path, plan, populations, arguments.seconds)


def play(script: Script, screen: Screen, stop: Stop) -> tuple[Mapping[str, Any], list[str]]:
    """Start everything, run the demo, end everything; return the figures and what is not good."""
    processes = factory_processes(script.factory, script.path, 'warn', None)
    observer = Observer(script.factory.servers, script.factory.manager.name, processes[-1].name)
    try:
        with Supervisor(processes, say=screen.note) as supervisor:
            demo = DemoRun(script, supervisor, observer, screen, stop)
            demo.wait_until_served()
            demo.serve()
            demo.finish()
    finally:
        observer.close()
    seen = observer.snapshot()
    summary = summarize(list(seen.reports.values()), seen.counts.values(), demo.rebalances,
                        script.seconds)
    return summary, [*find_faults(summary), *demo.faults]
