# SPDX-License-Identifier: Apache-2.0
"""Tickets wait in line, one for each robot and model, and leave in batches."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.engine.batch import Ticket
from robion_ros.engine.policies import POLICIES
from robion_ros.engine.queues import Queues


@pytest.fixture(scope='module')
def ticket(kit):
    def ticket(number: int, robot: str, model: str = 'm', deadline: float = inf) -> Ticket:
        request = kit.request(number, robot, model, deadline)
        return Ticket(request, {}, None, 0.0)
    return ticket


def numbers(tickets: tuple[Ticket, ...]) -> list[int]:
    return [ticket.request.number for ticket in tickets]


def taken(queues: Queues) -> list[tuple[str, list[int]]]:
    """Empty the queues; return model and numbers of each batch."""
    batches = []
    while batch := queues.take(0.0):
        batches.append((batch.model, numbers(batch.tickets)))
    return batches


def filled(tickets: list[Ticket], policy: str = 'earliest_slo_first', max_batch: int = 1,
           models: str = 'mno') -> Queues:
    queues = Queues(models, POLICIES[policy], max_batch)
    for ticket in tickets:
        queues.put(ticket)
    return queues


def test_first_in_first_out(ticket) -> None:
    queues = filled([ticket(number, f'r{number}') for number in (5, 3, 8, 1)])
    assert len(queues) == 4
    assert taken(queues) == [('m', [5]), ('m', [3]), ('m', [8]), ('m', [1])]
    assert len(queues) == 0 and queues.take(0.0) is None


def test_order_of_a_queue_is_not_that_of_deadlines(ticket) -> None:
    queues = filled([ticket(1, 'a', deadline=9.0), ticket(2, 'b', deadline=1.0)])
    assert taken(queues) == [('m', [1]), ('m', [2])]


def test_newer_ticket_takes_the_place_of_the_older(ticket) -> None:
    queues = filled([ticket(1, 'a'), ticket(2, 'b'), ticket(3, 'c')])
    replaced = queues.put(ticket(4, 'b'))
    assert replaced is not None and replaced.request.number == 2
    assert queues.put(ticket(5, 'd')) is None
    assert taken(queues) == [('m', [1]), ('m', [4]), ('m', [3]), ('m', [5])]


def test_model_with_a_long_deadline_does_not_starve(ticket) -> None:
    """A robot replaced again and again keeps the urgency of its place in the line."""
    queues = Queues('mn', POLICIES['earliest_slo_first'], 1)
    served = []
    for step in range(60):  # Robot 'slow' renews its observation faster than its deadline comes.
        queues.put(ticket(step, 'slow', 'n', deadline=step + 5.5))
        queues.put(ticket(step, f'fast{step % 3}', 'm', deadline=step + 0.5))
        batch = queues.take(0.0)
        assert batch is not None
        served.append(batch.model)
    assert served.count('n') >= 6


def test_robot_taken_goes_to_the_end_of_the_line(ticket) -> None:
    queues = filled([ticket(1, 'a'), ticket(2, 'b')])
    queues.take(0.0)
    assert queues.put(ticket(3, 'a')) is None
    assert taken(queues) == [('m', [2]), ('m', [3])]


def test_robot_may_wait_for_two_models(ticket) -> None:
    queues = filled([ticket(1, 'a', 'm'), ticket(2, 'a', 'n'), ticket(3, 'b', 'n')])
    assert len(queues) == 3
    assert sorted(numbers(queues.remove('a'))) == [1, 2]
    assert queues.remove('a') == queues.remove('nobody') == ()
    assert taken(queues) == [('n', [3])]


def test_clear_returns_all(ticket) -> None:
    queues = filled([ticket(1, 'a', 'm'), ticket(2, 'a', 'n'), ticket(3, 'b', 'n')])
    assert sorted(numbers(queues.clear())) == [1, 2, 3]
    assert len(queues) == 0 and queues.clear() == ()


@pytest.mark.parametrize('max_batch', [1, 2, 4, 8])
@pytest.mark.parametrize('waiting', range(1, 10))
def test_batch_is_the_largest_power_of_two(ticket, waiting: int, max_batch: int) -> None:
    sizes = [1, 2, 2, 4, 4, 4, 4, 8, 8]
    queues = filled([ticket(number, f'r{number}') for number in range(waiting)],
                    max_batch=max_batch)
    batch = queues.take(3.5)
    assert (batch.model, batch.started) == ('m', 3.5)
    assert numbers(batch.tickets) == list(range(min(sizes[waiting - 1], max_batch)))
    assert len(queues) == waiting - len(batch.tickets)


def test_batch_holds_one_model_only(ticket) -> None:
    queues = filled([ticket(1, 'a', 'm', 1.0), ticket(2, 'b', 'n', 2.0), ticket(3, 'c', 'm', 3.0),
                     ticket(4, 'd', 'n', 4.0)], max_batch=4)
    assert taken(queues) == [('m', [1, 3]), ('n', [2, 4])]


@pytest.mark.parametrize(('policy', 'expected'), [
    ('earliest_slo_first', 'n m m o m m'),
    ('round_robin', 'm n o m m m'),
    ('largest_queue_first', 'm m m n o m'),
])
def test_policies_choose_by_the_heads(ticket, policy: str, expected: str) -> None:
    lines = {'m': (2.0, 2.5, 4.0, 5.0), 'n': (1.0,), 'o': (3.0,)}
    queues = filled([ticket(index, f'{model}{index}', model, deadline)
                     for model, deadlines in lines.items()
                     for index, deadline in enumerate(deadlines)], policy)
    assert ' '.join(model for model, _ in taken(queues)) == expected


@pytest.mark.parametrize(('served', 'waiting', 'order'), [
    ('m', 'mmno', 'nomm'), ('nm', 'mn', 'nm'), ('onm', 'mmno', 'onmm'), ('', 'onm', 'mno'),
])
def test_round_robin_remembers_who_was_served(ticket, served: str, waiting: str,
                                              order: str) -> None:
    queues = filled([], 'round_robin')
    for number, model in enumerate(served):
        queues.put(ticket(number, 'a', model))
        queues.take(0.0)
    for number, model in enumerate(waiting):
        queues.put(ticket(number, f'r{number}', model))
    assert ''.join(model for model, _ in taken(queues)) == order


def ends(**ends: float):
    """Return when batches would end, by model and size, at: m1=5.0, m2=6.0; others never late."""
    return lambda load: ends.get(f'{load.model}{load.batch}', -inf)


def test_lost_tickets_are_removed_by_their_own_deadlines_and_model(ticket) -> None:
    queues = filled([ticket(1, 'a', 'm', 5.0), ticket(2, 'b', 'm', 1.0), ticket(3, 'c', 'm', 2.0),
                     ticket(4, 'd', 'n', 1.0), ticket(5, 'e', 'n', 0.5)])
    finish = ends(m1=2.0, n1=0.75, o1=9.0)
    assert sorted(numbers(queues.remove_lost(finish))) == [2, 5]
    assert queues.remove_lost(finish) == ()
    assert taken(queues) == [('n', [4]), ('m', [1]), ('m', [3])]


def test_lost_ticket_gives_way_to_all_that_can_be_met_and_goes_then(ticket) -> None:
    queues = filled([ticket(1, 'a', 'm', 1.0), ticket(2, 'b', 'm', 7.0), ticket(3, 'c', 'n', 8.0),
                     ticket(4, 'd', 'n', 2.0), ticket(5, 'e', 'm', 9.0)], max_batch=2)
    finish = ends(m1=5.0, m2=6.0, n1=5.0, n2=6.0)
    batches = []
    while batch := queues.take(4.0, finish):
        batches.append((batch.model, numbers(batch.tickets)))
    assert batches == [('m', [2, 5]), ('n', [3]), ('m', [1]), ('n', [4])]


def test_newer_ticket_can_be_met_where_the_older_could_not_and_goes_first(ticket) -> None:
    """The place ranks by the deadline that was missed, the ticket is judged by its own."""
    queues = filled([ticket(1, 'a', 'm', 1.0), ticket(2, 'b', 'n', 6.0)])
    finish = ends(m1=5.0, n1=5.0)
    queues.put(ticket(3, 'a', 'm', 9.0))
    assert numbers(queues.take(4.0, finish).tickets) == [3]
    assert numbers(queues.take(4.0, finish).tickets) == [2]


@pytest.mark.parametrize(('deadlines', 'expected'), [
    ((6.0, 9.0), [0, 1]), ((5.5, 9.0), [0]), ((5.5, 9.0, 9.0), [1, 2]), ((5.5, 5.6), [0]),
    ((5.5, 9.0, 5.6, 9.0), [1, 3]), ((4.0, 4.0, 5.5), [2]), ((4.0, 4.0), [0, 1]),
], ids=['both', 'head alone', 'head passed over', 'none in a pair', 'two of four',
        'lost do not ride', 'all lost'])
def test_batch_is_the_largest_whose_tickets_can_be_met_in_it(ticket, deadlines, expected) -> None:
    queues = filled([ticket(index, f'r{index}', 'm', deadline)
                     for index, deadline in enumerate(deadlines)], max_batch=2)
    assert numbers(queues.take(4.0, ends(m1=5.0, m2=6.0)).tickets) == expected


@pytest.mark.parametrize(('policy', 'expected'), [
    ('earliest_slo_first', 'o m m n n n'), ('round_robin', 'm o m n n n'),
    ('largest_queue_first', 'm o m n n n')])
def test_policies_see_what_can_be_met_first(ticket, policy: str, expected: str) -> None:
    lines = {'m': (8.0, 9.0), 'n': (1.0, 1.5, 2.0), 'o': (7.0,)}
    queues = filled([ticket(index, f'{model}{index}', model, deadline)
                     for model, deadlines in lines.items()
                     for index, deadline in enumerate(deadlines)], policy)
    finish = ends(m1=5.0, n1=5.0, o1=5.0)
    batches = []
    while batch := queues.take(4.0, finish):
        batches.append(batch.model)
    assert ' '.join(batches) == expected


TIMES = {'m': {1: 2.0, 2: 3.0, 4: 5.0}, 'n': {1: 1.0, 2: 1.5, 4: 2.0}}


@given(st.lists(st.tuples(st.sampled_from('abcdefgh'), st.sampled_from('mn'), st.floats(-5, 20)),
                max_size=30),
       st.sampled_from([1, 2, 4]), st.sampled_from(sorted(POLICIES)))
def test_no_lost_ticket_delays_one_that_can_be_met(ticket, puts, max_batch: int,
                                                   policy: str) -> None:
    """Taken one after the other, with locksteps as long as expected, and all accounted for."""
    queues = Queues('mn', POLICIES[policy], max_batch)
    waiting = {}
    for number, (robot, model, deadline) in enumerate(puts):
        replaced = queues.put(ticket(number, robot, model, deadline))
        if replaced:
            del waiting[replaced.request.number]
        waiting[number] = model, deadline
    now = 0.0
    while waiting:
        def finish(load, now=now) -> float:
            return now + TIMES[load.model][load.batch]
        met = {number for number, (model, deadline) in waiting.items()
               if deadline >= now + TIMES[model][1]}
        batch = queues.take(now, finish)
        went = set(numbers(batch.tickets))
        assert went <= waiting.keys() and all(waiting[each][0] == batch.model for each in went)
        if met:
            end = finish(batch.load)
            assert all(waiting[each][1] >= end for each in went)
        else:
            same = [each for each, (model, _) in waiting.items() if model == batch.model]
            assert len(went) == min(max_batch, 1 << (len(same).bit_length() - 1))
        now += TIMES[batch.model][len(went)] / 2
        for each in went:
            del waiting[each]
    assert queues.take(now) is None and len(queues) == 0


@given(st.lists(st.tuples(st.sampled_from(['put', 'put', 'put', 'take', 'remove', 'late']),
                          st.sampled_from('abc'), st.sampled_from('mn'), st.integers(0, 9)),
                max_size=40),
       st.sampled_from([1, 2, 4]), st.sampled_from(sorted(POLICIES)))
def test_every_ticket_leaves_once_and_in_order(ticket, steps, max_batch: int,
                                               policy: str) -> None:
    queues = Queues('mn', POLICIES[policy], max_batch)
    line: list[tuple[str, str, int, int]] = []  # what must be waiting, as a plain list
    for number, (action, robot, model, when) in enumerate(steps):
        if action == 'put':
            replaced = queues.put(ticket(number, robot, model, when))
            old = [entry for entry in line if entry[:2] == (model, robot)]
            assert numbers((replaced,) if replaced else ()) == [entry[2] for entry in old]
            entry = model, robot, number, when
            line = [entry if each in old else each for each in line] + [entry] * (not old)
        elif action == 'remove':
            gone = [entry for entry in line if entry[1] == robot]
            assert sorted(numbers(queues.remove(robot))) == sorted(entry[2] for entry in gone)
            line = [entry for entry in line if entry not in gone]
        elif action == 'late':
            gone = [entry for entry in line if entry[3] < when + (entry[0] == 'n')]
            lost = queues.remove_lost(ends(m1=when, n1=when + 1))
            assert sorted(numbers(lost)) == sorted(entry[2] for entry in gone)
            line = [entry for entry in line if entry not in gone]
        elif batch := queues.take(0.0):
            head = [entry for entry in line if entry[0] == batch.model][:len(batch.tickets)]
            assert numbers(batch.tickets) == [entry[2] for entry in head]
            line = [entry for entry in line if entry not in head]
        else:
            assert not line
        assert len(queues) == len(line)
    assert sorted(numbers(queues.clear())) == sorted(entry[2] for entry in line)


@pytest.mark.parametrize('policy', ['earliest_slo_first', 'round_robin', 'largest_queue_first'])
def test_who_leaves_goes_first_of_its_model_whatever_its_deadline(ticket, policy: str) -> None:
    queues = filled([ticket(1, 'a', deadline=9.0), ticket(2, 'b', deadline=1.0),
                     ticket(3, 'c', deadline=9.0)], policy)
    queues.hasten(lambda robot, model: robot == 'b')
    finish = {1: 5.0}
    batches = []
    while batch := queues.take(0.0, lambda load: finish[load.batch]):
        batches.append(numbers(batch.tickets))
    assert batches == [[2], [1], [3]]


def test_who_leaves_goes_before_other_models(ticket) -> None:
    queues = filled([ticket(1, 'a', 'm', 1.0), ticket(2, 'b', 'n', 8.0)])
    queues.hasten(lambda robot, model: (robot, model) == ('b', 'n'))
    assert [model for model, _ in taken(queues)] == ['n', 'm']
