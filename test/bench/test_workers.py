# SPDX-License-Identifier: Apache-2.0
"""Servers in processes of their own, that serve the robots they are given."""

from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from robion_ros.bench.arrivals import Robot, schedule
from robion_ros.bench.network import travel
from robion_ros.bench.records import Ending
from robion_ros.bench.settings import BenchError, Traffic
from robion_ros.bench.trial import measure_robots
from robion_ros.bench.workers import Divided, open_workers
from robion_ros.factory_file import load

FACTORY = """
models:
  a: &arm {architecture: tiny, cameras: [front], joints: [j], rate: 2.0, slo: 5.0, capacity: 9}
  b: {<<: *arm, seed: 2}
servers:
  s: &server {models: [a, b]}
  t: *server
robots: {}
"""
TRAFFIC = Traffic(epochs=1, seconds=1.0, lead=0.0)
ROBOTS = tuple(Robot(f'{model}_{index}', model, 5.0) for model in 'ab' for index in range(3))


@pytest.fixture
def factory(tmp_path: Path):
    path = tmp_path / 'factory.yaml'
    path.write_text(FACTORY)
    return load(path)


@pytest.mark.parametrize('in_turn', [False, True])
def test_robots_are_served_where_they_are_seated(factory, in_turn) -> None:
    seats = {'a_0': 's', 'a_1': 't', 'b_0': 't', 'b_1': 's', 'b_2': 's'}
    with open_workers(factory, in_turn, 0) as workers:
        assert len(active_children()) == 2
        serving = Divided(workers, in_turn, seats)
        row = measure_robots(serving, ROBOTS, TRAFFIC)
        again = measure_robots(Divided(workers, in_turn, {}), ROBOTS, TRAFFIC)
    assert not active_children()
    assert row['sent'] == 12 and row['answered'] == 10 and row['unanswered'] == 2
    unanswered = {robot for robot, ending in zip(row['requests']['robot'],
                                                 row['requests']['ending'], strict=True)
                  if ending == Ending.UNANSWERED.value}
    assert unanswered == {'a_2'}
    assert again['unanswered'] == 12


def test_server_that_cannot_begin_is_named(factory) -> None:
    broken = replace(factory, servers={**factory.servers, 't': replace(
        factory.servers['t'], device='cuda:99')})
    with (pytest.raises(BenchError, match=r't: BenchError: device .cuda:99. is not available'),
          open_workers(broken, False, 0)):
        pass
    assert not active_children()


def test_server_that_ends_is_named(factory) -> None:
    with open_workers(factory, True, 0) as workers:
        for process in active_children():
            process.kill()
            process.join()
        with pytest.raises(BenchError, match='the process of s has ended'):
            workers['s'].run(travel(schedule(ROBOTS, TRAFFIC, 0), None, 0, 0))
