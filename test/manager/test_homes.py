# SPDX-License-Identifier: Apache-2.0
from robion_ros.manager.handover import Place
from robion_ros.manager.homes import Homes

S, T, U = (Place('m', server) for server in 'stu')
MODELS = dict.fromkeys('abcd', 'm')


def test_robots_of_a_lost_server_are_at_home_there_whatever_happens_next() -> None:
    homes = Homes()
    homes.lose({'a': S, 'b': T, 'c': U}, {'b': T, 'c': U})
    assert homes.open('tu') == {}
    homes.settle(MODELS, 'tu')
    # Where it went is lost, too, and c has made room for it.
    homes.lose({'a': T, 'b': T, 'c': T, 'd': U}, {'d': U})
    assert homes.open('u') == {}
    assert homes.open('su') == {'a': S}
    homes.settle(MODELS, 'su')
    assert homes.open('stu') == {'a': S, 'b': T, 'c': U, 'd': U}
    homes.settle(MODELS, 'stu')
    assert homes.open('stu') == {}


def test_who_made_room_goes_back_when_no_server_is_lost_any_more() -> None:
    homes = Homes()
    homes.lose({'a': S, 'b': T, 'c': U}, {'c': U})
    assert homes.open('su') == {'a': S}
    assert homes.open('stu') == {'a': S, 'b': T, 'c': U}


def test_who_was_let_go_by_a_server_that_serves_goes_back_at_once() -> None:
    homes = Homes()
    homes.lose({'a': S, 'b': T}, {'b': T})
    assert homes.open('st') == {'a': S, 'b': T}


def test_homes_of_robots_that_left_or_have_another_model_are_forgotten() -> None:
    homes = Homes()
    homes.lose({'a': S, 'b': S, 'c': S}, {})
    homes.settle({'a': 'm', 'b': 'other'}, ())
    assert homes.open('s') == {'a': S}
    homes.lose({}, {})
    assert homes.open('s') == {'a': S}
