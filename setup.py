# SPDX-License-Identifier: Apache-2.0
"""
Build the package for pip: run the CMake of the ROS machines and pack what it installs.

Knows no module, interface or file of the package: package.xml says what it is, CMakeLists.txt
what is built, setup.cfg what it needs.
"""

from hashlib import blake2b
import os
from pathlib import Path
import shutil
import subprocess
import sys
from xml.etree import ElementTree

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = ElementTree.parse(ROOT / 'package.xml').getroot()
NAME = PACKAGE.findtext('name')
PREFIXES = [sys.prefix, *filter(None, os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep))]


def run_cmake(build: Path) -> Path:
    """Configure, build and install into a folder of build; return that folder."""
    if not any(Path(prefix, 'share/rosidl_default_generators').is_dir() for prefix in PREFIXES):
        raise SystemExit(f'no ROS 2 in {", ".join(PREFIXES)}: source the setup file of your ROS '
                         'installation, or install requirements/kilted.txt into this environment')
    if not shutil.which('cmake'):
        raise SystemExit('cmake is missing: sudo apt install cmake')
    prefixes = os.pathsep.join(PREFIXES)
    # pip's isolated builds hide the environment's own packages, where the generators are.
    paths = [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep)
             if path and 'pip-build-env-' not in path]
    environment = os.environ | {
        'AMENT_PREFIX_PATH': prefixes, 'CMAKE_PREFIX_PATH': prefixes,
        'PYTHONPATH': os.pathsep.join(paths),
        'DESTDIR': str(build / 'stage'),
        'CMAKE_BUILD_PARALLEL_LEVEL': str(os.cpu_count()),
    }
    shutil.rmtree(build / 'stage', ignore_errors=True)
    for arguments in (
        ['-S', ROOT, '-B', build, '-DCMAKE_BUILD_TYPE=Release', '-DBUILD_TESTING=OFF',
         f'-DCMAKE_INSTALL_PREFIX={sys.prefix}', f'-DPython3_EXECUTABLE={sys.executable}',
         f'-DROBION_ROS_PYTHON={sys.executable}'],
        ['--build', build],
        ['--install', build],
    ):
        if subprocess.run(['cmake', *arguments], env=environment).returncode:
            raise SystemExit('cmake failed: its first error above says why')
    return build / 'stage' / Path(sys.prefix).relative_to('/')


class Build(build_py):
    """Let CMake build; its modules go to site-packages, everything else into the prefix."""

    def run(self) -> None:
        """Replace setuptools' copying of modules."""
        if self.editable_mode:
            raise SystemExit('an editable install cannot hold the generated interfaces: '
                             'install without -e')
        # One build folder for each environment: CMake remembers where it found ROS.
        key = blake2b(os.pathsep.join(PREFIXES).encode(), digest_size=4).hexdigest()
        prefix = run_cmake(ROOT / 'build' / f'{sys.implementation.cache_tag}-{key}')
        modules = next(prefix.rglob(f'{NAME}/msg/__init__.py')).parents[1]
        shutil.rmtree(self.build_lib, ignore_errors=True)
        shutil.copytree(modules, Path(self.build_lib, NAME),
                        ignore=shutil.ignore_patterns('__pycache__'))
        # pip writes bin/ from the entry points and the metadata beside the modules.
        self.distribution.data_files = [
            (str(path.parent.relative_to(prefix)), [str(path)]) for path in prefix.rglob('*')
            if path.is_file() and modules.parent not in path.parents
            and prefix / 'bin' not in path.parents]


class BinaryDistribution(Distribution):
    """A wheel for one platform: the generated libraries are compiled."""

    def has_ext_modules(self) -> bool:
        """Tell setuptools so, as it does not see them."""
        return True


setup(
    name=NAME,
    version=PACKAGE.findtext('version'),
    description=PACKAGE.findtext('description'),
    license=PACKAGE.findtext('license'),
    author=PACKAGE.findtext('author'),
    maintainer=PACKAGE.findtext('maintainer'),
    maintainer_email=PACKAGE.find('maintainer').get('email'),
    packages=[NAME],
    distclass=BinaryDistribution,
    cmdclass={'build_py': Build},
)
