# SPDX-License-Identifier: Apache-2.0
"""Of two processes of a name the one that was there before goes on, whatever their clocks say."""

import pytest

from robion_ros.nodes.incarnation import Incarnation


@pytest.mark.parametrize(('speaks', 'other', 'gives_way'), [
    (True, 6, True), (True, 7, False), (True, 8, False),
    (False, 6, True), (False, 7, False), (False, 8, True),
], ids=str)
def test_who_gives_way(speaks: bool, other: int, gives_way: bool) -> None:
    assert Incarnation(7, speaks).gives_way(other) == gives_way


def test_of_two_that_speak_just_one_goes_on() -> None:
    one, two = Incarnation(speaks=True), Incarnation(speaks=True)
    assert one.gives_way(two.number) != two.gives_way(one.number) or one.number == two.number
