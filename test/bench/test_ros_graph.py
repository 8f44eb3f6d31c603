# SPDX-License-Identifier: Apache-2.0
"""A whole factory as a way of serving."""

from dataclasses import replace

import pytest

from robion_ros.bench.arrivals import Arrival, make_robots, Robot, schedule
from robion_ros.bench.network import Trip
from robion_ros.bench.records import Ending
from robion_ros.bench.ros_graph import divide, Graph, make_record, open_graph, populate
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.bench.trial import measure
from robion_ros.config import CameraConfig, FactoryConfig, ModelConfig, ServerConfig
from robion_ros.processes import Process
from robion_ros.traffic_files import Observed

SLOS = {'pick': 2.0, 'place': 3.0}
ARM = ModelConfig('tiny', {'front': CameraConfig(), 'wrist': CameraConfig('compressed')},
                  ('a', 'b'), rate=2.0, slo=SLOS['pick'], capacity=1)
FACTORY = FactoryConfig({'pick': ARM, 'place': replace(ARM, slo=SLOS['place'], seed=7)},
                        {'server_0': ServerConfig(('pick', 'place'))})
TRAFFIC = Traffic(epochs=1, seconds=1.0, lead=0.5)
TRIP = Trip(Arrival(Robot('robot_1', 'pick', 0.5), 1, 0.25, True))


def test_robots_are_spread_over_models_and_processes() -> None:
    factory = populate(Graph(FACTORY, 5))
    assert factory.robots == {'pick': ('robot_1', 'robot_3', 'robot_5'),
                              'place': ('robot_2', 'robot_4')}
    assert divide(factory, 2) == {'traffic_0': ['robot_1', 'robot_3'],
                                  'traffic_1': ['robot_5', 'robot_2'], 'traffic_2': ['robot_4']}
    assert divide(factory, 8) == {'traffic_0': ['robot_1', 'robot_3', 'robot_5', 'robot_2',
                                                'robot_4']}


def test_an_answer_counts_from_the_last_picture() -> None:
    record = make_record(TRIP, 10.0, Observed(10.3, 10.4, 0.08, 0.03, 0.02, 2))
    assert record.ending is Ending.ANSWERED
    assert record.latency == pytest.approx(0.1)
    assert record.lag == pytest.approx(0.05)
    assert record.timings and record.timings.queue == pytest.approx(0.03)
    assert (record.batch, record.met) == (2, True)
    assert not make_record(TRIP, 10.0, Observed(10.3, 10.9)).met


def test_what_was_not_answered_is_a_miss() -> None:
    record = make_record(TRIP, 10.0, Observed(10.25))
    assert (record.ending, record.latency, record.met) == (Ending.UNANSWERED, None, False)


@pytest.mark.ros
@pytest.mark.usefixtures('own_domain')
def test_it_serves_epochs_of_any_robots() -> None:
    lines: list[str] = []
    with open_graph(Graph(FACTORY, 4, per_process=2, image=(32, 24)), lines.append) as serving:
        assert set(serving.supervisor.pids) == {'server_0', 'manager', 'traffic_0', 'traffic_1'}
        for count in (4, 1, 3):
            row = measure(serving, SLOS, count, replace(TRAFFIC, epochs=2))
            assert row['sent'] == 2 * count * 2
            assert row['sent'] == row['answered'] + row['unanswered']
            assert row['answered'] >= 0.9 * row['sent'], lines
            assert row['latency_ms']['p50'] > row['vlm_ms']['p50'] > 0
        trips = [Trip(arrival) for arrival in schedule(make_robots(SLOS, 5), TRAFFIC, 0)]
        with pytest.raises(BenchError, match='4 robots are simulated, 1 more are asked for'):
            serving.run(trips)
        with pytest.raises(BenchError, match='leave --network out'):
            serving.run([TRIP._replace(up=0.01)])


@pytest.mark.ros
@pytest.mark.usefixtures('own_domain')
def test_a_process_that_does_not_start_is_named() -> None:
    def change(process: Process) -> Process:
        if process.name != 'server_0':
            return process
        return replace(process, arguments=('--ros-args', '-p', 'config:=nowhere.yaml'))
    lines: list[str] = []
    with pytest.raises(BenchError, match='server_0 ended before its time'), \
            open_graph(Graph(FACTORY, 1, change=change), lines.append):
        pass
    assert any('nowhere.yaml' in line for line in lines)
