# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: what it says of itself, what it installs, what its tree holds."""

from importlib.metadata import distribution, entry_points
import os
from pathlib import Path
import re
import subprocess
import sys
from xml.etree import ElementTree

from ament_index_python.packages import get_package_prefix
from catkin_pkg.package import parse_package
import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {'.ci', 'benchmarks', 'config', 'launch', 'msg', 'requirements', 'robion_ros', 'scripts',
        'srv', 'test'}
FILES = [path for path in ROOT.rglob('*')
         if path.is_file() and '__pycache__' not in path.parts
         and (path.parent == ROOT or path.relative_to(ROOT).parts[0] in OURS)]
PYTHON = [path for path in FILES if path.suffix == '.py']
COMMANDS = ['bin/robion', *(f'lib/robion_ros/{node}' for node in ('server', 'manager', 'robot'))]
ELEMENTS = [
    'name', 'version', 'description', 'maintainer', 'license', 'url', 'author',
    'buildtool_depend', 'depend', 'exec_depend', 'test_depend', 'member_of_group', 'export',
]
"""What package.xml holds, in this order; all of it is in format 3 (REP 149)."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def prefix(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the package is installed: an environment, or an install space of colcon."""
    if 'AMENT_PREFIX_PATH' not in os.environ:
        monkeypatch.setenv('AMENT_PREFIX_PATH', sys.prefix)
    return Path(get_package_prefix('robion_ros'))


def test_package_xml_is_valid() -> None:
    warnings: list[str] = []
    package = parse_package(ROOT, warnings=warnings)
    package.validate(warnings=warnings)
    assert warnings == []
    assert package.package_format == 3
    assert package.get_build_type() == 'ament_cmake'
    assert package.licenses == ['Apache-2.0']
    assert (ROOT / package.licenses[0].file).is_file()


def test_package_xml_holds_known_elements_in_order_and_each_dependency_once() -> None:
    root = ElementTree.parse(ROOT / 'package.xml').getroot()
    tags = [element.tag for element in root]
    assert set(tags) <= set(ELEMENTS)
    assert tags == sorted(tags, key=ELEMENTS.index)
    named = [element.text for element in root if element.tag.endswith('depend')]
    assert len(named) == len(set(named))


def test_versions_are_equal() -> None:
    title = re.search(r'^(\d+\.\d+\.\d+) \((forthcoming|\d{4}-\d\d-\d\d)\)\n-+$',
                      (ROOT / 'CHANGELOG.rst').read_text(), re.M)
    assert title, 'CHANGELOG.rst has no entry'
    assert distribution('robion_ros').version == parse_package(ROOT).version == title[1]


def test_installed_metadata_is_that_of_package_xml() -> None:
    package, metadata = parse_package(ROOT), distribution('robion_ros').metadata
    assert metadata['Summary'] == package.description
    assert metadata['Maintainer-email'] == package.maintainers[0].email
    assert metadata['License'] == package.licenses[0]


def test_installed_package_is_the_one_under_test() -> None:
    import robion_ros
    assert ROOT / 'robion_ros' not in Path(robion_ros.__file__).parents


def test_share_holds_what_is_no_code(prefix: Path) -> None:
    shared = [path for path in FILES
              if relative(path).startswith(('launch/', 'config/', 'msg/', 'srv/', 'package.xml'))]
    share = prefix / 'share/robion_ros'
    assert shared
    assert [relative(path) for path in shared
            if not (share / relative(path)).is_file()
            or (share / relative(path)).read_bytes() != path.read_bytes()] == []


@pytest.mark.parametrize('entry', [entry for entry in entry_points(group='console_scripts')
                                   if entry.dist and entry.dist.name == 'robion_ros'],
                         ids=lambda entry: entry.name)
def test_entry_point_can_be_called(entry) -> None:
    assert callable(entry.load())


@pytest.mark.ros
@pytest.mark.parametrize('command', COMMANDS)
def test_command_shows_its_help(command: str, prefix: Path) -> None:
    # Without the variables of this process: the environment need not be activated.
    result = subprocess.run([prefix / command, '--help'], capture_output=True, text=True,
                            env={'HOME': os.environ.get('HOME', '/'), 'PATH': os.defpath})
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) > 3
    assert result.stderr == ''


def test_no_file_is_over_300_lines() -> None:
    checked = {'.py', '.msg', '.srv', '.xml', '.txt', '.yaml', '.in'}
    long = {relative(path): lines for path in FILES if path.suffix in checked
            if (lines := path.read_text().count('\n')) > 300}
    assert long == {}


def test_python_files_name_the_licence() -> None:
    header = '# SPDX-License-Identifier: Apache-2.0\n'
    missing = [relative(path) for path in PYTHON
               if path != ROOT / 'robion_ros/__init__.py'
               and not path.read_text().startswith(header)]
    assert missing == []


def test_import_package_leaves_room_for_the_generated_one() -> None:
    assert (ROOT / 'robion_ros/__init__.py').read_text() == ''
    for name in ('msg', 'srv', 'action'):
        assert not (ROOT / 'robion_ros' / name).exists()
        assert not (ROOT / f'robion_ros/{name}.py').exists()
    folders = {path.parent for path in PYTHON if 'robion_ros' in path.relative_to(ROOT).parts}
    assert [relative(path) for path in folders if not (path / '__init__.py').is_file()] == []


def test_test_folders_are_no_packages() -> None:
    # pytest imports by path: an __init__.py would put the source folder on sys.path.
    assert list((ROOT / 'test').rglob('__init__.py')) == []
