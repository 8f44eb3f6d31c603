# SPDX-License-Identifier: Apache-2.0
"""Whole factories on virtual time: nothing is lost silently, whatever befalls them."""

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from robion_ros.bench.metrics import attainment
from robion_ros.bench.network import Link, Network
from robion_ros.bench.records import Ending, Record
from robion_ros.bench.settings import Traffic
from robion_ros.simulation.events import Change, Kill
from robion_ros.simulation.factory import Factory, Simulated
from robion_ros.simulation.scenario import Scenario

PLANNING = 0.25
TIMEOUT = 0.4


def run(kit, factory=None, seconds: float = 10.0, **changes) -> Simulated:
    changes = {'planning': PLANNING, 'times': kit.make_times(), **changes}
    return Factory(Scenario(factory or kit.make_factory(), traffic=Traffic(
        epochs=1, seconds=seconds, lead=1.0), **changes)).run()


def missed(simulated: Simulated) -> list[Record]:
    return [record for record in simulated.records if not record.met]


def test_a_calm_factory_answers_everything_in_time(kit) -> None:
    found = run(kit)
    assert missed(found) == [] and found.homeless == 0
    (plan,) = found.plans
    assert plan.why == ('start',) and (plan.placed, plan.moved, plan.left_out) == (8, 0, {})
    assert sum(server.served.answered for server in found.servers) == len(found.records)
    assert all(server.served.answered for server in found.servers), 'each has a model of its own'


def test_with_one_robot_a_chunk_takes_both_stages(kit) -> None:
    found = run(kit, kit.make_factory(robots={'pick': 1}))
    for record in found.records:
        assert record.latency == pytest.approx(kit.VLM[1] + kit.ADIT[1])
        assert record.batch == 1


def test_a_network_adds_its_ways_and_loses_what_it_loses(kit) -> None:
    link = Link(10.0, 10.0, 10.0, mbit_s=1e6)
    network = Network(link, link, request_kb=0, chunk_kb=0)
    found = run(kit, kit.make_factory(robots={'pick': 1}), network=network)
    for record in found.records:
        assert record.latency == pytest.approx(0.020 + kit.VLM[1] + kit.ADIT[1])
    lossy = Link(10.0, 10.0, 10.0, loss=0.3, mbit_s=1e6)
    found = run(kit, network=Network(lossy, lossy, 0, 0))
    ends = Counter(record.ending for record in found.records)
    assert ends[Ending.LOST_UP] > 0 and ends[Ending.LOST_DOWN] > 0
    assert set(ends) == {Ending.LOST_UP, Ending.LOST_DOWN, Ending.ANSWERED}


def test_requests_of_a_dead_server_are_missed_until_others_take_over(kit) -> None:
    found = run(kit, kills=[Kill('server_0', 3.0)])
    _, second = found.plans
    assert second.why == ('server_0 died',) and second.caused == 4.0
    assert second.asked == pytest.approx(4.0 + TIMEOUT)
    assert second.in_force == pytest.approx(4.0 + TIMEOUT + PLANNING)
    assert second.placed == 4 and second.moved == 0 and second.left_out == {}
    lost = missed(found)
    assert lost and {record.ending for record in lost} == {Ending.UNANSWERED}
    # What was under way is lost, too: up to what a request takes before its end.
    assert all(4.0 - 0.1 < record.arrival.at <= second.in_force for record in lost)
    robots = {record.arrival.robot.name for record in lost}
    assert len({name.partition('_')[0] for name in robots}) == 1, 'of one server'
    assert found.homeless == sum(record.arrival.at >= 4.0 for record in lost)
    assert [(step.at, step.unserved) for step in found.shortages] == [
        (0.0, 0), (4.0, 4), (pytest.approx(second.in_force), 0)]
    assert [server.alive for server in found.servers] == [False, True]


def test_where_the_rest_cannot_take_over_priorities_decide(kit) -> None:
    factory = kit.make_factory(robots={'pick': 8, 'place': 8}, capacity=10,
                               priorities={'place': 1})
    found = run(kit, factory, kills=[Kill('server_1', 3.0, 8.0)])
    start, died, back = found.plans
    assert start.left_out == {} and died.left_out == {'pick': 6}
    assert '6 robots of pick' in died.problem
    assert back.why == ('server_1 came back',) and back.left_out == {} and back.caused == 9.0
    unserved = {record.arrival.robot.name for record in found.records
                if died.in_force < record.arrival.at < back.in_force
                and record.ending is Ending.UNANSWERED}
    assert len(unserved) == 6 and all(name.startswith('pick') for name in unserved)
    late = [record for record in found.records if record.arrival.at > back.in_force]
    assert late and all(record.met for record in late)
    assert [server.name for server in found.servers] == ['server_0', 'server_1', 'server_1']
    assert found.servers[2].served.answered > 0


def test_robots_that_come_are_served_once_a_plan_is_in_force(kit) -> None:
    found = run(kit, changes=[Change('pick', 12, 5.0)])
    (plan,) = found.plans[1:]
    assert plan.why == ('16 robots',) and plan.robots == 16 and plan.placed == 8
    new = missed(found)
    assert new and all(int(record.arrival.robot.name.split('_')[1]) > 4
                       and 6.0 <= record.arrival.at <= 6.0 + PLANNING for record in new)


def test_robots_move_without_losing_a_request(kit) -> None:
    """Two servers of one model each make room for another model: one must become its own."""
    factory = kit.make_factory(robots={'pick': 18}, capacity=12)
    found = run(kit, factory, changes=[Change('pick', 12, 3.0), Change('place', 12, 3.0)])
    (plan,) = found.plans[1:]
    assert plan.moved > 0 and plan.objective == 0
    # Each robot is heard by its next server first: half a second at 2 Hz.
    assert plan.in_force == pytest.approx(plan.asked + PLANNING + 0.5)
    old = {f'pick_{index}' for index in range(1, 13)}
    assert {record.ending for record in found.records
            if record.arrival.robot.name in old} == {Ending.ANSWERED}


def test_a_server_that_is_back_before_it_was_missed_gets_its_robots_again(kit) -> None:
    found = run(kit, kills=[Kill('server_0', 3.0, 3.1)])
    (plan,) = found.plans[1:]
    assert plan.why == ('server_0 came back',) and plan.placed == 4
    assert plan.in_force == pytest.approx(4.1 + PLANNING)
    assert all(record.arrival.at <= plan.in_force for record in missed(found))


def test_robots_go_back_to_a_server_that_was_lost_also_if_another_had_room(kit) -> None:
    found = run(kit, kit.make_factory(servers=3), kills=[Kill('server_0', 3.0, 6.0)])
    start, died, back = found.plans
    assert start.objective == died.objective == back.objective == 0
    assert died.placed and (back.placed, back.moved) == (0, died.placed)
    assert all(record.met for record in found.records if record.arrival.at > died.in_force)


def test_the_manager_plans_one_thing_after_another(kit) -> None:
    factory = kit.make_factory(servers=3)
    found = run(kit, factory, kills=[Kill('server_0', 3.0), Kill('server_1', 3.1)])
    plans = found.plans[1:]
    assert [plan.why for plan in plans] == [('server_0 died',), ('server_1 died',)]
    assert plans[1].asked >= plans[0].in_force
    after = [record for record in found.records if record.arrival.at > plans[1].in_force]
    assert after and all(record.ending is Ending.ANSWERED for record in after)


def test_without_any_server_nothing_is_answered_and_that_is_said(kit) -> None:
    found = run(kit, kills=[Kill('server_0', 2.0), Kill('server_1', 2.0)])
    assert found.plans[-1].left_out == {'pick': 4, 'place': 4}
    after = [record for record in found.records if record.arrival.at > 3.0]
    assert {record.ending for record in after} == {Ending.UNANSWERED}
    assert found.shortages[-1].unserved == 8


def test_more_robots_than_can_be_computed_are_served_as_far_as_possible(kit) -> None:
    """Full locksteps of two take 18 ms: 111 requests a second, of 160 asked for."""
    found = run(kit, kit.make_factory(1, {'pick': 80}, capacity=100))
    counted = [record for record in found.records if record.arrival.counted]
    assert attainment(counted) == pytest.approx(2 / 0.018 / 160, abs=0.03)


def test_two_runs_are_the_same(kit) -> None:
    def once() -> Simulated:
        return run(kit, kit.make_factory(2, {'pick': 30, 'place': 10}, capacity=40),
                   kills=[Kill('server_0', 3.0, 6.0)])
    assert list(once().records) == list(once().records)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_whatever_happens_every_request_has_exactly_one_end(kit, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    factory = kit.make_factory(
        count, {'pick': data.draw(st.integers(0, 30)), 'place': data.draw(st.integers(0, 12))},
        capacity=data.draw(st.sampled_from((5, 20))), slo=data.draw(st.sampled_from((0.03, 0.2))),
        late=data.draw(st.sampled_from(('yield', 'serve', 'shed'))),
        engine=data.draw(st.sampled_from(('lockstep', 'monolithic'))),
        device=data.draw(st.sampled_from(('cpu', 'cuda:0'))),
        max_batch=data.draw(st.sampled_from((1, 2))))
    kills = []
    for index in range(count):
        at = data.draw(st.floats(0.01, 3.9))
        if data.draw(st.booleans()):
            kills.append(Kill(f'server_{index}', at, at + data.draw(st.floats(0.01, 3.0))))
    changes = [Change(model, data.draw(st.integers(0, 30)), at / 10) for model, at in data.draw(
        st.lists(st.tuples(st.sampled_from(('pick', 'place')), st.integers(0, 40)), max_size=3,
                 unique=True))]
    lossy = Link(3.0, 400.0, loss=0.05)
    scenario = Scenario(factory, kit.make_times(preprocess=data.draw(
        st.sampled_from((0.0, 0.003)))), Traffic(epochs=1, seconds=4.0, lead=0.5),
        data.draw(st.sampled_from((None, Network(lossy, lossy)))), kills, changes, 0.1)
    found = Factory(scenario).run()
    arrivals = scenario.arrivals
    assert Counter((record.arrival.robot.name, record.arrival.number)
                   for record in found.records) == Counter(
        (arrival.robot.name, arrival.number) for arrival in arrivals)
    ends = Counter(record.ending for record in found.records)
    assert sum(ends.values()) == len(arrivals)
    assert not ends[Ending.FAILED] and not ends[Ending.CANCELLED]
    if not kills and not changes and scenario.network is None:
        assert ends[Ending.UNANSWERED] == 0 or found.plans[0].left_out
    for record in found.records:
        assert record.latency is None or record.latency > 0
    for server in found.servers:
        assert server.served.busy <= found_end(found) - server.started + 1e-6
    for one, other in pairwise(found.plans):
        assert one.in_force <= other.in_force and one.asked <= other.asked


def found_end(found: Simulated) -> float:
    """Return a time after which no stage runs any more."""
    return max((record.arrival.at + (record.latency or 0.0) for record in found.records),
               default=0.0) + 60.0
