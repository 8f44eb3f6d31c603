# SPDX-License-Identifier: Apache-2.0
"""The acts of a demo, played to an observer that sees what the test wants."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

import pytest

from robion_ros.commands import demo_run
from robion_ros.commands.demo_factory import swap
from robion_ros.commands.demo_run import DemoRun, Interrupted, NotServed, Script
from robion_ros.commands.live import Screen
from robion_ros.commands.plan import plan_factory
from robion_ros.config import CameraConfig, FactoryConfig, ModelConfig, ServerConfig
from robion_ros.observed import Rebalanced, Report, Seat, Server, Snapshot

MODEL = ModelConfig('tiny', {'front': CameraConfig()}, ('joint_1',), 2.0, 0.15, 4)
SERVER = ServerConfig(('pick', 'place'))
FACTORY = FactoryConfig({'pick': MODEL, 'place': MODEL}, {'server_0': SERVER, 'server_1': SERVER},
                        {'pick': ('robot_1', 'robot_2'), 'place': ('robot_3',)})
SERVED = Snapshot(
    reports={robot: Report(robot, sent=3, answered=2, finished=True)
             for robot in ('robot_1', 'robot_2', 'robot_3')},
    servers={name: Server(name, 1, 'active', ('pick', 'place'), 1, (), 0, 1.0)
             for name in FACTORY.servers},
    seats={'robot_1': Seat('pick', 'server_0'), 'robot_2': Seat('pick', 'server_0'),
           'robot_3': Seat('place', 'server_1')}, counts={})
MOVED = Rebalanced(True, '1 of 3 robots moved', moved=1)


@dataclass
class Stage:
    """Stands in for the observer, the supervisor and the user."""

    seen: Snapshot = SERVED
    answer: Rebalanced | None = MOVED
    services: list[str] = field(default_factory=list)
    restarts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(
        ('server_0', 'server_1', 'manager', 'simulated_robots'), 0))
    pids: dict[str, int] = field(default_factory=lambda: dict.fromkeys(
        ('server_0', 'server_1', 'manager', 'simulated_robots'), 1))
    over: list[str] = field(default_factory=list)
    impatient: bool = False
    asked: list[dict[str, tuple[str, ...]]] = field(default_factory=list)
    finished: bool = False

    def snapshot(self) -> Snapshot:
        return self.seen

    def missing(self) -> list[str]:
        return self.services

    def rebalance(self, populations: dict[str, tuple[str, ...]]) -> Future[Rebalanced]:
        self.asked.append(populations)
        answer: Future[Rebalanced] = Future()
        if self.answer:
            answer.set_result(self.answer)
        return answer

    def finish(self) -> None:
        self.finished = True

    def wait(self, seconds: float) -> bool:
        return self.impatient


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stage], DemoRun]:
    for name in ('START_TIMEOUT', 'REBALANCE_TIMEOUT', 'FINISH_TIMEOUT'):
        monkeypatch.setattr(demo_run, name, 0.02)
    monkeypatch.setattr(demo_run, 'SECOND_TRY', 0.005)
    script = Script(FACTORY, Path('factory.yaml'), plan_factory(FACTORY), swap(FACTORY), 0.02)
    return lambda stage: DemoRun(script, stage, stage, Screen(StringIO()), stage)


def without(robot: str) -> dict[str, Report]:
    return {name: report for name, report in SERVED.reports.items() if name != robot}


def test_demo_moves_robots_once_and_finds_no_fault(make: Callable[[Stage], DemoRun]) -> None:
    stage = Stage()
    demo = make(stage)
    demo.wait_until_served()
    demo.serve()
    demo.finish()
    assert stage.asked == [{'pick': ('robot_2',), 'place': ('robot_1', 'robot_3')}]
    assert stage.finished
    assert demo.rebalances == [MOVED]
    assert demo.faults == []


def test_a_manager_that_was_held_up_is_asked_again(make: Callable[[Stage], DemoRun]) -> None:
    class HeldUp(Stage):
        def rebalance(self, populations: dict[str, tuple[str, ...]]) -> Future[Rebalanced]:
            self.answer = MOVED if self.asked else Rebalanced(False, 'ask again', 202)
            return super().rebalance(populations)
    stage = HeldUp()
    demo = make(stage)
    demo.serve()
    assert len(stage.asked) == 2 and demo.rebalances == [MOVED] and demo.faults == []


@pytest.mark.parametrize(('stage', 'missing'), [
    (Stage(replace(SERVED, servers={})), 'servers server_0, server_1'),
    (Stage(replace(SERVED, servers={
        **SERVED.servers, 'server_1': replace(SERVED.servers['server_1'], state='inactive')})),
     'servers server_1'),
    (Stage(services=['/manager/rebalance']), 'services /manager/rebalance'),
    (Stage(replace(SERVED, seats={**SERVED.seats, 'robot_3': Seat('place', '')})),
     'a server for robot_3'),
    (Stage(replace(SERVED, seats=dict.fromkeys(SERVED.seats, Seat('pick', 'server_1')))),
     'robots on server_0'),
    (Stage(replace(SERVED, reports=without('robot_2'))), 'the first chunk of robot_2'),
], ids=['nothing', 'server loads', 'no manager', 'no seat', 'idle server', 'no answer'])
def test_what_does_not_come_at_the_start_ends_the_demo_by_name(
        stage: Stage, missing: str, make: Callable[[Stage], DemoRun]) -> None:
    with pytest.raises(NotServed, match=f'waited in vain for {missing}$'):
        make(stage).wait_until_served()


@pytest.mark.parametrize('respawn', [True, False])
def test_process_that_dies_at_the_start_is_not_waited_for(
        respawn: bool, make: Callable[[Stage], DemoRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, 'START_TIMEOUT', 3600.0)
    stage = Stage(replace(SERVED, servers={}))
    if respawn:
        stage.restarts['manager'] = 1
    else:
        del stage.pids['manager']
        stage.over.append('manager')
    with pytest.raises(NotServed, match=r'; manager ended before its time$'):
        make(stage).wait_until_served()


@pytest.mark.parametrize(('stage', 'fault'), [
    (Stage(answer=None), 'waited in vain for the answer of the manager'),
    (Stage(answer=Rebalanced(False, 'server_0 did not answer; trying again', 204)),
     'the rebalance failed: server_0 did not answer; trying again'),
    (Stage(replace(SERVED, reports=without('robot_1'))),
     'waited in vain for the last report of robot_1'),
    (Stage(restarts={'server_0': 1, 'manager': 0}), 'server_0 ended before its time'),
    (Stage(pids={'server_0': 1, 'server_1': 1, 'manager': 1}),
     'simulated_robots ended before its time'),
], ids=['manager silent', 'not applied', 'robot silent', 'server restarted', 'robots gone'])
def test_what_goes_wrong_later_is_a_fault(stage: Stage, fault: str,
                                          make: Callable[[Stage], DemoRun]) -> None:
    demo = make(stage)
    demo.serve()
    demo.finish()
    assert fault in demo.faults


def test_user_ends_every_wait(make: Callable[[Stage], DemoRun]) -> None:
    demo = make(Stage(replace(SERVED, reports={}), answer=None, impatient=True))
    for act in (demo.wait_until_served, demo.serve, demo.finish):
        with pytest.raises(Interrupted):
            act()


def test_many_names_are_cut_short() -> None:
    assert demo_run.join([f'robot_{number}' for number in range(1, 11)]).endswith(
        'robot_7, robot_8 and 2 more')
