# SPDX-License-Identifier: Apache-2.0
"""Parameters: every value works or is refused with its name and the mend."""

from collections.abc import Callable, Iterator
import re
from typing import Any

import pytest
import rclpy
from rclpy.node import Node

from robion_ros.nodes.parameters import declare, describe, Parameter

pytestmark = pytest.mark.ros

TABLE = (Parameter('rate', 5.0, 'how often, Hz'), Parameter('count', 2, 'how many'),
         Parameter('path', 'a.yaml', 'of the file'), Parameter('start', True, 'at once'))


@pytest.fixture
def make(own_domain: None) -> Iterator[Callable[..., Node]]:
    def make(*words: str) -> Node:
        pairs = [part for word in words for part in ('-p', word)]
        return rclpy.create_node('n', cli_args=['--ros-args', *pairs] if pairs else [])
    rclpy.init(args=[])
    yield make
    rclpy.shutdown()


@pytest.mark.parametrize(('words', 'values'), [
    ([], {'rate': 5.0, 'count': 2, 'path': 'a.yaml', 'start': True}),
    (['rate:=7', 'count:=0'], {'rate': 7.0, 'count': 0, 'path': 'a.yaml', 'start': True}),
    (['rate:=1e-3', "path:='yes'", 'start:=false'],
     {'rate': 0.001, 'count': 2, 'path': 'yes', 'start': False}),
])
def test_values(make: Callable[..., Node], words: list[str], values: dict[str, Any]) -> None:
    found = declare(make(*words), TABLE)
    assert found == values
    assert all(type(found[name]) is type(value) for name, value in values.items())


@pytest.mark.parametrize(('word', 'message'), [
    ('rate:=fast', "parameter rate of node n is 'fast' (str), must be float: give it a float, "
                   'such as 5.0'),
    ('rate:=true', 'is True (bool), must be float'),
    ('count:=1.5', 'is 1.5 (float), must be int: give it a int, such as 2'),
    ('path:=yes', "is True (bool), must be str: write 'True' in quotes"),
    ('path:=12', "is 12 (int), must be str: write '12' in quotes"),
    ('path:=[a, b]', "is ['a', 'b'] (list), must be str: give it a str, such as 'a.yaml'"),
    ('path:=[]', 'parameter path of node n is empty, must be str'),
    ('start:=1', 'is 1 (int), must be bool: give it a bool, such as True'),
    ('start:=maybe', "is 'maybe' (str), must be bool"),
])
def test_a_wrong_type_is_refused_with_the_mend(make: Callable[..., Node], word: str,
                                               message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        declare(make(word), TABLE)


def test_parameters_are_described_and_cannot_be_set_later(make: Callable[..., Node]) -> None:
    node = make()
    declare(node, TABLE)
    assert node.describe_parameter('rate').description == 'how often, Hz'
    assert not node.set_parameters([rclpy.Parameter('rate', value=6.0)])[0].successful
    assert node.get_parameter('rate').value == 5.0


def test_help_names_every_parameter_and_its_default() -> None:
    assert describe(TABLE) == (
        '  rate   how often, Hz (default: 5.0)\n'
        '  count  how many (default: 2)\n'
        "  path   of the file (default: 'a.yaml')\n"
        '  start  at once (default: True)')
