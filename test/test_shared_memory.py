# SPDX-License-Identifier: Apache-2.0
"""What killed processes leave in shared memory is freed; what living ones hold is not."""

import fcntl
import os
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from robion_ros import shared_memory
from robion_ros.processes import environment
from robion_ros.shared_memory import sweep

NODE = """
import sys, rclpy
rclpy.init()
node = rclpy.create_node('n')
print('up', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a segment whose process has ended."""
    monkeypatch.setattr(shared_memory, 'YOUTH', 0.0)
    path = tmp_path / 'fastdds_1a'
    path.write_bytes(bytes(100_000))
    path.with_name('fastdds_1a_el').touch()
    return path


def test_segment_of_a_dead_process_is_removed_with_its_lock(segment: Path) -> None:
    assert sweep(segment.parent) >= 100_000
    assert not list(segment.parent.iterdir())
    assert sweep(segment.parent) == 0


def test_segment_that_is_locked_stays(segment: Path) -> None:
    with segment.with_name('fastdds_1a_el').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweep(segment.parent) == 0
        assert segment.exists()
    assert sweep(segment.parent) > 0


def test_young_segment_stays(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, 'YOUTH', 60.0)
    assert sweep(segment.parent) == 0 and segment.exists()


@pytest.mark.parametrize('name', ['fastdds_port7000_el', 'other_el', 'fastdds_2b'])
def test_what_is_no_segment_with_a_lock_stays(tmp_path: Path, segment: Path, name: str) -> None:
    (tmp_path / name).touch()
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_lock_without_segment_is_removed(tmp_path: Path, segment: Path) -> None:
    segment.unlink()
    assert sweep(tmp_path) == 0 and not list(tmp_path.iterdir())


def test_folder_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    assert sweep(tmp_path / 'none') == 0


@pytest.mark.ros
def test_real_process_keeps_its_segments_until_it_is_killed(
        own_domain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast DDS names and locks them as is assumed here."""
    if not shared_memory.FOLDER.is_dir():
        pytest.skip('this system has no shared memory there')
    monkeypatch.setattr(shared_memory, 'YOUTH', 0.0)
    node = subprocess.Popen([sys.executable, '-P', '-c', NODE], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env=os.environ | environment())
    try:
        assert node.stdout and node.stdout.readline() == b'up\n'
        opened = {os.readlink(link) for link in Path(f'/proc/{node.pid}/fd').iterdir()}
        mine = [Path(path.removesuffix('_el')) for path in opened
                if path.endswith('_el') and '_port' not in path]
        assert mine
        sweep()
        assert all(path.exists() for path in mine)
        node.send_signal(signal.SIGKILL)
        node.wait()
        assert all(path.exists() for path in mine)
        sweep()
        assert not any(path.exists() for path in mine)
    finally:
        node.kill()
        node.communicate()
