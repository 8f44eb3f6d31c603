# SPDX-License-Identifier: Apache-2.0
"""Imports point one way: core and config know nobody, nodes wire the rest together."""

import ast
from collections.abc import Iterator
from pathlib import Path
import sys

from catkin_pkg.package import parse_package
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'robion_ros'
MODULES = sorted(path for path in PACKAGE.rglob('*.py') if path != PACKAGE / '__init__.py')

ALLOWED = {
    'core': set(),
    'architectures': set(),
    'config': {'architectures'},
    'observed': set(),
    'shared_memory': set(),
    'factory_file': {'config'},
    'processes': {'config'},
    'demo_summary': {'observed', 'words'},
    'traffic_files': set(),
    'words': set(),
    'models': {'architectures', 'core', 'config'},
    'engine': {'core', 'config', 'models'},
    'manager': {'core', 'config', 'words'},
    'nodes': {'bench', 'core', 'config', 'observed', 'factory_file', 'traffic_files', 'models',
              'engine', 'manager', 'msg', 'shared_memory', 'srv', 'words'},
    'bench': {'core', 'config', 'factory_file', 'models', 'engine', 'manager', 'observed',
              'processes', 'supervisor', 'traffic_files', 'nodes', 'words'},
    'simulation': {'core', 'config', 'factory_file', 'models', 'engine', 'manager', 'bench',
                   'words'},
    'supervisor': {'processes'},
    'launching': {'processes', 'supervisor'},
    'commands': {'architectures', 'bench', 'config', 'observed', 'factory_file', 'processes',
                 'demo_summary', 'models', 'engine', 'manager', 'nodes', 'simulation',
                 'supervisor', 'words'},
    'cli': {'commands'},
}
"""What each part of robion_ros may import of the others."""

FOREIGN = {
    'torch': {'models', 'engine', 'bench', 'simulation'},
    'matplotlib': {'bench'},
    'cuda': {'engine'},
    'triton': {'models'},
    'safetensors': {'models'},
    'ortools': {'manager'},
    'yaml': {'factory_file'},
    'rclpy': {'nodes'},
    'launch': {'launching'},
    'launch_ros': {'launching'},
}
"""The parts that may import what not every user of the package has, or wants to load."""

OPTIONAL = {'cuda', 'triton'}
"""Come with torch where torch is built for a GPU; done without elsewhere."""

KEYS = {
    'cv2': 'python3-opencv', 'matplotlib': 'python3-matplotlib', 'numpy': 'python3-numpy',
    'ortools': 'python3-ortools-pip',
    'safetensors': 'python3-safetensors-pip', 'torch': 'python3-pytorch-pip',
    'yaml': 'python3-yaml',
}
"""rosdep keys of the packages that are not named as they are imported."""


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: relative import'
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def test_every_part_is_known() -> None:
    assert {part_of(path) for path in MODULES} <= set(ALLOWED)


@pytest.mark.parametrize('path', MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_what_its_part_may(path: Path) -> None:
    part = part_of(path)
    for name in imports(path):
        package, *rest = name.split('.')
        if package == 'robion_ros':
            assert rest[0] in ALLOWED[part] | {part}, name
        elif package in FOREIGN:
            assert part in FOREIGN[package], name


def test_servers_measure_without_what_measures_servers() -> None:
    """Capacities are measured by nodes with parts of bench, other parts of which run nodes."""
    above = {path.stem for path in MODULES if part_of(path) == 'bench'
             and any(name.startswith('robion_ros.nodes') for name in imports(path))}
    assert above == {'ros_graph'}
    below, found = {'sustained', 'prepared'}, set[str]()
    while below - found:
        path = PACKAGE / 'bench' / f'{(name := (below - found).pop())}.py'
        found.add(name)
        below |= {words[2] for module in imports(path)
                  if (words := module.split('.'))[:2] == ['robion_ros', 'bench']}
    assert not found & above
    used = {name.split('.')[2] for path in MODULES if part_of(path) == 'nodes'
            for name in imports(path) if name.startswith('robion_ros.bench.')}
    assert used == {'sustained', 'prepared'}


def test_package_xml_names_what_is_imported() -> None:
    files = [*MODULES, *ROOT.glob('launch/*.py')]
    packages = {name.split('.')[0] for path in files for name in imports(path)}
    packages -= sys.stdlib_module_names | {'robion_ros'}
    known = {dependency.name for dependency in parse_package(ROOT).exec_depends}
    packages -= OPTIONAL
    assert {KEYS.get(package, package) for package in packages} - known == set()


def test_rule_sees_imports_of_every_form(tmp_path: Path) -> None:
    module = tmp_path / 'module.py'
    module.write_text('import torch.nn\nfrom robion_ros import core\n'
                      'def late():\n    from robion_ros.nodes.qos import CHUNK\n')
    assert list(imports(module)) == [
        'torch.nn', 'robion_ros.core', 'robion_ros.nodes.qos.CHUNK']
