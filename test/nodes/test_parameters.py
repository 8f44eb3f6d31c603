# SPDX-License-Identifier: Apache-2.0
"""Parameters: every value works or is refused with its name and the mend."""

from collections.abc import Callable, Iterator
from importlib import import_module
import math
import re
from typing import Any

import pytest
import rclpy
from rclpy.node import Node

from robion_ros.nodes import spin
from robion_ros.nodes.parameters import declare, describe, Parameter

pytestmark = pytest.mark.ros

TABLE = (Parameter('rate', 5.0, 'how often, Hz'), Parameter('count', 2, 'how many'),
         Parameter('path', 'a.yaml', 'of the file'), Parameter('start', True, 'at once'))
LIMITED = (Parameter('rate', 5.0, 'how often, Hz', 0.1, 100),
           Parameter('count', 2, 'how many', 0, 2**63 - 1))

TABLES = {name: import_module(f'robion_ros.nodes.{name}').PARAMETERS
          for name in ('manager', 'server', 'robot', 'traffic')}
BY_FILE = {'robot.robots', 'traffic.robots', 'traffic.first'}
"""How many robots there are to choose from, the factory file says."""
NUMBERS = {f'{name}.{parameter.name}': parameter for name, table in TABLES.items()
           for parameter in table if type(parameter.default) in (int, float)}
OF_NODES = pytest.mark.parametrize('parameter', [
    pytest.param(parameter, id=key) for key, parameter in NUMBERS.items() if key not in BY_FILE])


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


@pytest.mark.parametrize(('word', 'value'), [
    ('rate:=0.1', 0.1), ('rate:=100', 100.0), ('rate:=1', 1.0), ('count:=0', 0),
    ('count:=9223372036854775807', 2**63 - 1)])
def test_limits_themselves_are_within(make: Callable[..., Node], word: str, value: float) -> None:
    assert declare(make(word), LIMITED)[word.partition(':')[0]] == value


@pytest.mark.parametrize(('word', 'message'), [
    ('rate:=0.0999999999', 'rate: is 0.0999999999, must be from 0.1 to 100'),  # rclpy takes it.
    ('rate:=101', 'rate: is 101.0, must be from 0.1 to 100'),
    ('rate:=.nan', 'rate: is nan, must be from 0.1 to 100'),
    ('rate:=.inf', 'rate: is inf, must be from 0.1 to 100'),
    ('rate:=-.inf', 'rate: is -inf, must be from 0.1 to 100'),
    ('count:=-1', 'count: is -1, must be from 0 to 9223372036854775807'),
    ('count:=9223372036854775808', 'count of node n is'),
])
def test_numbers_out_of_their_limits_are_refused(make: Callable[..., Node], word: str,
                                                 message: str) -> None:
    with pytest.raises(ValueError, match=f'^parameter {re.escape(message)}'):
        declare(make(word), LIMITED)


def test_limits_are_described(make: Callable[..., Node]) -> None:
    node = make('rate:=7')
    declare(node, LIMITED)
    [limits] = node.describe_parameter('rate').floating_point_range
    assert (limits.from_value, limits.to_value, limits.step) == (0.1, 100.0, 0.0)
    [limits] = node.describe_parameter('count').integer_range
    assert (limits.from_value, limits.to_value, limits.step) == (0, 2**63 - 1, 0)
    assert node.describe_parameter('rate').read_only
    assert describe(LIMITED[:1]) == '  rate  how often, Hz (from 0.1 to 100, default: 5.0)'


def test_every_number_of_every_node_has_limits() -> None:
    assert {key for key, parameter in NUMBERS.items() if parameter.low is None} == BY_FILE


@OF_NODES
def test_default_and_limits_of_nodes_work(make: Callable[..., Node],
                                          parameter: Parameter) -> None:
    low, high = parameter.low, parameter.high
    assert low <= parameter.default <= high
    for value in (low, high, parameter.default):
        assert declare(make(f'{parameter.name}:={value}'), [parameter]) == {parameter.name: value}


@OF_NODES
def test_nodes_refuse_whatever_else_is_given(make: Callable[..., Node],
                                             parameter: Parameter) -> None:
    whole = type(parameter.default) is int
    below, above = ((parameter.low - 1, parameter.high + 1) if whole else
                    (math.nextafter(parameter.low, -1), math.nextafter(parameter.high, math.inf)))
    for word in (below, above, -1, '.nan', '.inf', '-.inf', 'nan', "'1'", 'fast', 'true', '[1]'):
        with pytest.raises(ValueError, match=f'^parameter {parameter.name}(:| of node n) is '):
            pytest.fail(f'{word} is {declare(make(f"{parameter.name}:={word}"), [parameter])}')


@pytest.mark.parametrize(('node', 'word', 'message'), [
    ('manager', 'period:=0', 'parameter period: is 0.0, must be from 0.01 to 10'),
    ('manager', 'settle_time:=.nan', 'parameter settle_time: is nan, must be from 0 to 60'),
    ('manager', 'handover_timeout:=-1', 'parameter handover_timeout: is -1.0, must be from 0 to '
                                        '3600'),
    ('server', 'drain_timeout:=-1', 'parameter drain_timeout: is -1.0, must be from 0 to 3600'),
    ('robot', 'joint_rate:=0', 'parameter joint_rate: is 0.0, must be from 0.1 to 1000'),
    ('robot', 'patience:=soon', "parameter patience of node robot is 'soon' (str), must be float: "
                                'give it a float, such as 2.0'),
    ('traffic', 'image_width:=7', 'parameter image_width: is 7, must be from 8 to 8192'),
    ('traffic', 'patience:=.inf', 'parameter patience: is inf, must be from 0 to 3600'),
])
def test_a_node_that_refuses_ends_with_2_and_one_line(
        own_domain: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
        node: str, word: str, message: str) -> None:
    monkeypatch.setattr(spin.Flag, 'hear', lambda *_: None)  # Signals stay the test runner's.
    module = import_module(f'robion_ros.nodes.{node}')
    assert module.main(['program', '--ros-args', '-p', word]) == 2
    assert capfd.readouterr() == ('', f'program: {message}\n')
