# SPDX-License-Identifier: Apache-2.0
"""Plans put into force at servers that answer, refuse or are silent."""

from collections.abc import Collection
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.manager.handover import moving, Place
from robion_ros.msg import RobotAssignment, RobotStatus
from robion_ros.nodes import transition
from robion_ros.nodes.fleet import Waited
from robion_ros.nodes.transition import NUMBER_MARGIN, Transition
from robion_ros.srv import AssignRobots

pytestmark = pytest.mark.ros

MAX_RATE = 1000
"""Most requests of a robot in a second that a factory file may ask for."""
SERVERS = ('s', 't', 'u')
ROBOTS = tuple(f'r{number}' for number in range(1, 5))


@dataclass
class FakeFleet:
    """Servers that do as told, but for the calls that fail."""

    held: dict[str, dict[str, RobotAssignment]]
    """By server, then robot: what it was told last."""
    failing: dict[tuple[str, int], str] = field(default_factory=dict)
    """By server and the how manieth call of all: 'refuse', 'silent' or 'lost' (the answer)."""
    reported: dict[str, RobotStatus] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """Requests at the server that answers a robot."""
    ready: frozenset[str] = frozenset(ROBOTS)
    lost: frozenset[str] = frozenset()
    """Servers that die while robots are waited for."""
    ends: bool = False
    """Whether the manager is told to end meanwhile."""
    calls: list[dict[str, AssignRobots.Request]] = field(default_factory=list)
    doubled: set[str] = field(default_factory=set)
    last_epoch: int = 7

    def epoch(self) -> int:
        return self.last_epoch

    def robots(self) -> dict[str, RobotStatus]:
        return self.reported

    def wait_ready(self, standbys: dict[str, str], epochs: dict[str, int],
                   servers: Collection[str], timeout: float) -> Waited:
        assert timeout == 3.0
        assert all(epochs[server] for server in standbys.values())
        for robot, server in standbys.items():
            assert self.held[server][robot].standby
        unready = {robot: server for robot, server in standbys.items()
                   if robot not in self.ready}
        lost = self.lost & set(servers)
        for server in lost:
            self.held[server] = {}
        return Waited(unready, lost, bool(lost) or self.ends)

    def call_all(self, requests):
        self.calls.append(dict(requests))
        return {server: self.call(server, request, self.failing.get((server, len(self.calls))))
                for server, request in requests.items()}

    def call(self, server, request, failure):
        assert request.epoch > self.last_epoch or failure == 'refuse'
        assert request.term == 5
        if failure == 'refuse':
            return AssignRobots.Response(message='no room')
        if failure == 'silent':
            return None
        self.last_epoch = request.epoch
        new = {item.robot: item for item in request.robots}
        released = [RobotAssignment(robot=robot, last_request=self.numbers.get(robot, 0))
                    for robot, item in self.held[server].items()
                    if not item.standby and (robot not in new or new[robot].standby)]
        self.held[server] = new
        self.doubled |= {robot for robot in ROBOTS if len(self.active(robot)) > 1}
        return None if failure == 'lost' else AssignRobots.Response(success=True,
                                                                    released=released)

    def active(self, robot: str) -> list[str]:
        return [server for server, robots in self.held.items()
                if robot in robots and not robots[robot].standby]

    def told(self, server: str, robot: str) -> list[RobotAssignment]:
        return [item for calls in self.calls if server in calls
                for item in calls[server].robots if item.robot == robot]


def make_fleet(old, **values) -> FakeFleet:
    return FakeFleet({server: {robot: RobotAssignment(robot=robot, model=place.model)
                               for robot, place in old.items() if place.server == server}
                      for server in SERVERS}, **values)


def apply(fleet: FakeFleet, old, new, alive=SERVERS, unsure=()):
    terms = dict.fromkeys(alive, 5)
    return Transition(fleet, 0, 3.0, terms).apply(old, new, alive, unsure)


places = st.dictionaries(st.sampled_from(ROBOTS), st.builds(
    Place, st.sampled_from('ab'), st.sampled_from(SERVERS)))


@given(places, places, st.dictionaries(
    st.tuples(st.sampled_from(SERVERS), st.integers(1, 4)),
    st.sampled_from(['refuse', 'silent', 'lost']), max_size=3), st.sets(st.sampled_from(SERVERS)),
    st.frozensets(st.sampled_from(ROBOTS)), st.frozensets(st.sampled_from(SERVERS), max_size=1),
    st.booleans())
def test_whatever_fails_no_robot_is_answered_twice_and_what_is_said_is_so(
        old, new, failing, unsure, ready, lost, ends) -> None:
    fleet = make_fleet(old, failing=failing, ready=ready, lost=lost, ends=ends)
    applied = apply(fleet, old, new, unsure=unsure)
    assert not fleet.doubled
    if ends or lost & applied.failures.keys():  # Who was ready has moved, the others stayed.
        new = {**new, **{robot: old[robot] for robot in moving(old, new, SERVERS) - ready}}
    for robot, place in applied.places.items():
        if place.server not in applied.failures:
            assert fleet.active(robot) == [place.server]
            assert fleet.held[place.server][robot].model == place.model
    if not applied.failures:
        assert applied.places == new
        assert {robot for robots in fleet.held.values() for robot in robots} == set(new)
    assert set(applied.failures) <= {server for server, _ in failing} | lost
    # Robots that no failed server has to do with are where they shall be.
    for robot in new:
        servers = {new[robot].server, old.get(robot, new[robot]).server}
        if not servers & applied.failures.keys():
            assert applied.places[robot] == new[robot]
    assert applied.epoch >= fleet.last_epoch


@pytest.mark.parametrize(('server', 'call', 'failure', 'where'), [
    ('t', 1, 'refuse', 's'),
    ('t', 1, 'silent', 's'),
    ('t', 1, 'lost', 's'),
    ('s', 2, 'refuse', 's'),
    ('s', 2, 'silent', 's'),
], ids=['next refuses', 'next is silent', "next's answer is lost", 'old refuses',
        'old is silent'])
def test_robot_stays_served_where_it_was(server, call, failure, where) -> None:
    old, new = {'r1': Place('a', 's')}, {'r1': Place('a', 't')}
    fleet = make_fleet(old, failing={(server, call): failure})
    applied = apply(fleet, old, new)
    assert fleet.active('r1') == [where]
    assert applied.places == {'r1': Place('a', where)}
    assert list(applied.failures) == [server]


def test_old_server_that_may_have_let_go_is_not_followed() -> None:
    """Until it says so: the manager tries again."""
    old, new = {'r1': Place('a', 's')}, {'r1': Place('a', 't')}
    fleet = make_fleet(old, failing={('s', 2): 'lost'})
    applied = apply(fleet, old, new)
    assert fleet.active('r1') == [] and fleet.held['t']['r1'].standby
    assert applied.failures == {'s': 's did not answer'}


@pytest.mark.parametrize(('now', 'alive', 'number'), [
    (0, 'st', 42), (0, 't', 40 + NUMBER_MARGIN),
    (9 * 10**12, 'st', 42), (9 * 10**12, 't', 9 * 10**6),
], ids=['as let go', 'as reported and more', 'as let go, later', 'by the clock'])
def test_request_numbers_go_on(monkeypatch, now, alive, number) -> None:
    """Whoever reports may have listened only: the time is greater than any number it missed."""
    monkeypatch.setattr(transition, 'time_ns', lambda: now)
    old, new = {'r1': Place('a', 's')}, {'r1': Place('a', 't')}
    fleet = make_fleet(old, numbers={'r1': 42}, reported={
        'r1': RobotStatus(robot='r1', last_request=40, watermark=5, prompt='go',
                          prompt_stamp=3)})
    apply(fleet, old, new, alive)
    told = fleet.told('t', 'r1')[-1]
    assert (told.standby, told.last_request) == (False, number)
    if alive == 't':
        assert (told.watermark, told.prompt, told.prompt_stamp) == (5, 'go', 3)


def test_server_that_starts_again_meanwhile_goes_on_with_numbers() -> None:
    """It may be called for another robot before the manager has noticed."""
    old = {'r1': Place('a', 's'), 'r2': Place('a', 't')}
    fleet = make_fleet(old, reported={
        'r1': RobotStatus(robot='r1', last_request=40), 'r2': RobotStatus(robot='r2')})
    apply(fleet, old, {'r1': Place('a', 's'), 'r2': Place('a', 's')})
    assert {item.last_request for item in fleet.told('s', 'r1')} == {40}


def test_numbers_of_robots_that_nobody_knows_are_greater_than_any_before() -> None:
    """Manager and servers may have been started anew, but not the robot: 1 it would ignore."""
    new = {'r1': Place('a', 't')}
    numbers = []
    for now in (10**18, 10**18 + 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transition, 'time_ns', lambda now=now: now)
            fleet = make_fleet({})
            apply(fleet, {}, new)
        numbers.append(fleet.told('t', 'r1')[0].last_request)
    first, second = numbers
    assert second >= first + MAX_RATE


@pytest.mark.parametrize('ready', [True, False])
def test_robots_that_were_not_heard_are_moved_and_named(ready) -> None:
    old, new = {'r1': Place('a', 's')}, {'r1': Place('a', 't'), 'r2': Place('a', 't')}
    fleet = make_fleet(old, ready=frozenset(['r1'] if ready else []))
    applied = apply(fleet, old, new)
    assert applied.unready == ({} if ready else {'r1': 't'})
    assert applied.places == new and fleet.active('r1') == ['t']


@pytest.mark.parametrize(('values', 'failures'), [
    ({'ends': True}, []), ({'lost': frozenset('u')}, ['u'])], ids=['the manager ends', 'a loss'])
def test_robots_that_were_not_heard_stay_when_there_is_no_time(values, failures) -> None:
    old = {robot: Place('a', 's') for robot in ('r1', 'r2')} | {'r3': Place('a', 'u')}
    new = {robot: Place('a', 't') for robot in ('r1', 'r2')} | {'r3': Place('a', 'u')}
    fleet = make_fleet(old, ready=frozenset(['r1']), **values)
    applied = apply(fleet, old, new)
    assert (fleet.active('r1'), fleet.active('r2')) == (['t'], ['s'])
    assert applied.places == new | {'r2': Place('a', 's')}
    assert (list(applied.failures), applied.unready) == (failures, {})
    assert list(applied.stayed) == ([] if failures else ['r2'])
    assert 'r2' not in fleet.held['t']  # It listens no more.


def test_robots_of_a_next_server_that_is_lost_stay_and_it_is_not_called() -> None:
    old = {robot: Place('a', 's') for robot in ('r1', 'r2')}
    new = {'r1': Place('a', 't'), 'r2': Place('a', 'u')}
    fleet = make_fleet(old, lost=frozenset('t'))
    applied = apply(fleet, old, new)
    assert (fleet.active('r1'), fleet.active('r2')) == (['s'], ['u'])
    assert applied.places == {'r1': Place('a', 's'), 'r2': Place('a', 'u')}
    assert applied.failures == {'t': 't was lost while robots moved'}
    assert len(fleet.told('t', 'r1')) == 1


def test_default_of_a_model_is_not_handed_over_as_an_instruction() -> None:
    new = {'r1': Place('b', 't')}
    fleet = make_fleet({}, reported={'r1': RobotStatus(robot='r1', model='a', prompt='pick')})
    apply(fleet, {}, new)
    assert [item.prompt for item in fleet.told('t', 'r1')] == ['']
