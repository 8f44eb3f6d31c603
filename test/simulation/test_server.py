# SPDX-License-Identifier: Apache-2.0
"""One server on virtual time: who is answered when."""

import pytest

from robion_ros.config import ServerConfig
from robion_ros.core import ActionChunk, DropReason, Request
from robion_ros.simulation.agenda import Agenda
from robion_ros.simulation.device import VirtualModel
from robion_ros.simulation.ledger import NOTHING
from robion_ros.simulation.server import SimulatedServer


class World:
    """A server, and its outcomes as they are called out."""

    def __init__(self, kit, times: dict | None = None, **config) -> None:
        self.agenda = Agenda()
        self.outcomes: list = []
        self.server = SimulatedServer('s', ServerConfig(('pick', 'place'), **config),
                                      kit.make_times(**times or {}), self.agenda, self.hear)
        self.server.assign({f'r{number}': 'pick' for number in range(100)})

    def hear(self, outcome) -> None:
        if isinstance(outcome, ActionChunk):
            assert outcome.finished == pytest.approx(self.agenda.now)
        self.outcomes.append(outcome)

    def ask(self, robot: int, at: float, slo: float = 1.0, model: str = 'pick',
            number: int = 1) -> None:
        self.agenda.at(at, lambda now: self.server.submit(
            Request(f'r{robot}', number, model, NOTHING, now, now + slo)))

    def run(self) -> list[tuple[str, int, str | float]]:
        """Return robot, number, and reason or time of every outcome in order."""
        self.agenda.run()
        return [(outcome.request.robot, outcome.request.number,
                 pytest.approx(outcome.finished) if isinstance(outcome, ActionChunk)
                 else outcome.reason.value) for outcome in self.outcomes]


@pytest.mark.parametrize('device', ['cpu', 'cuda:0'])
@pytest.mark.parametrize('engine', ['lockstep', 'monolithic'])
def test_a_robot_alone_waits_for_both_stages(kit, engine: str, device: str) -> None:
    world = World(kit, engine=engine, device=device)
    for number in range(5):
        world.ask(1, number * 0.5, number=number)
    assert world.run() == [('r1', number, number * 0.5 + 0.013) for number in range(5)]
    timings = world.outcomes[-1].timings
    assert (timings.queue, timings.vlm, timings.adit, timings.engine) == pytest.approx(
        (0.0, 0.008, 0.005, 0.013))


@pytest.mark.parametrize('stage', ['vlm_beside', 'adit_beside', 'postprocess'])
def test_ctrl_c_ends_the_run_and_is_no_failure_of_a_model(kit, monkeypatch, stage: str) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr(VirtualModel, stage, interrupt)
    world = World(kit)
    world.ask(1, 0.0)
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert not world.outcomes


def test_preprocessing_comes_first_one_request_after_the_other(kit) -> None:
    world = World(kit, {'preprocess': 0.1})
    world.ask(1, 0.0)
    world.ask(2, 0.0)
    assert world.run() == [('r1', 1, 0.113), ('r2', 1, 0.213)]


def test_what_comes_during_a_lockstep_forms_the_next_batch(kit) -> None:
    world = World(kit)
    world.ask(1, 0.0)
    for robot in (2, 3, 4):
        world.ask(robot, 0.001 * robot)
    # Locksteps: (1), (2 beside 1), (1 beside 2), (ADiT 1).
    assert world.run() == [('r1', 1, 0.024), ('r2', 1, 0.035), ('r3', 1, 0.035),
                           ('r4', 1, 0.040)]
    assert [outcome.batch for outcome in world.outcomes] == [1, 2, 2, 1]
    served = world.server.served
    assert (served.answered, served.locksteps, served.batches, served.batched) == (4, 4, 3, 4)
    assert served.busy == pytest.approx(0.040) and served.paired == pytest.approx(0.027)


def test_on_a_gpu_a_batch_is_fixed_a_lead_before_its_lockstep(kit) -> None:
    world = World(kit, device='cuda:0')
    for number in range(3):  # It has to learn what a VLM stage alone takes.
        world.ask(9, number * 0.1, number=number)
    world.ask(1, 1.0)
    world.ask(2, 1.0 + 0.008 - 0.0016)  # Just before the second lockstep is launched.
    world.ask(3, 1.0 + 0.008 - 0.0014)  # Just after; it runs from 8 ms on all the same.
    found = world.run()[3:]
    assert found == [('r1', 1, 1.018), ('r2', 1, 1.028), ('r3', 1, 1.033)]


def test_a_newer_request_takes_the_place_of_the_one_that_waits(kit) -> None:
    world = World(kit)
    world.ask(1, 0.0)
    world.ask(2, 0.001, number=1)
    world.ask(2, 0.002, number=2)
    assert world.run() == [('r2', 1, 'superseded'), ('r1', 1, 0.018), ('r2', 2, 0.023)]


def test_what_is_late_is_shed_if_so_told(kit) -> None:
    world = World(kit, late='shed')
    world.ask(1, 0.0)
    world.ask(2, 0.001, slo=0.001)
    found = world.run()
    assert ('r2', 1, 'shed') in found and len(found) == 2


def test_robots_that_leave_are_answered_first(kit) -> None:
    world = World(kit, max_batch=1)
    world.ask(1, 0.0)
    for robot in (2, 3, 4):
        world.ask(robot, 0.001, slo=1 + robot)
    world.agenda.at(0.002, lambda now: world.server.assign({'r2': 'pick', 'r3': 'pick'}))
    assert [robot for robot, *_ in world.run()] == ['r1', 'r4', 'r2', 'r3']


def test_a_dead_server_answers_nothing_any_more(kit) -> None:
    world = World(kit)
    world.ask(0, 0.0)
    for robot in range(1, 6):
        world.ask(robot, 0.001)
    world.ask(7, 0.030)
    world.agenda.at(0.0285, world.server.die)
    found = world.run()
    # Locksteps end at 8, 24 and 42 ms; the chunk of the first leaves at 24.
    assert found == [('r0', 1, 0.024)]
    assert world.server.served.answered == 1 and not world.server.alive


def test_earliest_deadline_goes_first(kit) -> None:
    world = World(kit, max_batch=1)
    world.server.assign({'r1': 'pick', 'r2': 'pick', 'r3': 'place'})
    world.ask(1, 0.0)
    world.ask(2, 0.001, slo=2.0)
    world.ask(3, 0.002, slo=1.0, model='place')
    assert [robot for robot, *_ in world.run()] == ['r1', 'r3', 'r2']
    assert DropReason.SHED not in {getattr(outcome, 'reason', None)
                                   for outcome in world.outcomes}
