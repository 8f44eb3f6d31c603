# SPDX-License-Identifier: Apache-2.0
"""What an evaluation and its robots tell each other by files."""

from pathlib import Path

from robion_ros.traffic_files import Found, Observed, TrafficFiles


def test_what_is_written_is_read(tmp_path: Path) -> None:
    here, there = TrafficFiles(str(tmp_path), 1), TrafficFiles(str(tmp_path), 1)
    assert there.read_plan() is None
    here.write_plan({'robot_1': (0.25, 0.75), 'robot_2': []})
    assert there.read_plan() == {'robot_1': [0.25, 0.75], 'robot_2': []}
    assert not here.is_ready('traffic_0')
    there.write_ready('traffic_0')
    assert here.is_ready('traffic_0')
    assert not here.is_ready('traffic_1')
    assert there.read_start() is None
    here.write_start(12.5)
    assert there.read_start() == 12.5
    found = Found({'robot_1': [Observed(12.75, 12.9, 0.1, 0.05, 0.04, 2), Observed(13.25)],
                   'robot_2': []}, 1)
    assert here.read_found('traffic_0') is None
    there.write_found('traffic_0', found)
    assert here.read_found('traffic_0') == found


def test_plans_do_not_mix(tmp_path: Path) -> None:
    TrafficFiles(str(tmp_path), 1).write_start(1.0)
    assert TrafficFiles(str(tmp_path), 2).read_start() is None
    assert TrafficFiles(str(tmp_path), 11).read_start() is None


def test_an_empty_result_is_a_result(tmp_path: Path) -> None:
    files = TrafficFiles(str(tmp_path), 1)
    files.write_found('traffic_0', Found({}, 0))
    assert files.read_found('traffic_0') == Found({}, 0)
