# SPDX-License-Identifier: Apache-2.0
"""
A node's parameters as one table, declared by one function.

Knows no node in particular.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from robion_ros.config import check_range

Value = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One read-only parameter: everything that can change while a node runs is a service."""

    name: str
    default: Value
    description: str
    low: int | float | None = None
    high: int | float | None = None
    """Limits of a number, both or neither; those that a file sets are the node's to check."""


def declare(node: Node, table: Sequence[Parameter]) -> Mapping[str, Value]:
    """
    Declare a table of parameters and return their values.

    Raise ValueError naming the parameter, its value and the mend or the limits when one has
    another type or is out of them; an int where a float is wanted is converted.
    """
    return {parameter.name: _declare(node, parameter) for parameter in table}


def describe(table: Sequence[Parameter]) -> str:
    """Return the table as text for --help."""
    width = max(len(parameter.name) for parameter in table)
    return '\n'.join(f'  {parameter.name:{width}}  {parameter.description} ({_limits(parameter)}'
                     f'default: {parameter.default!r})' for parameter in table)


def _limits(parameter: Parameter) -> str:
    return '' if parameter.low is None else f'from {parameter.low} to {parameter.high}, '


def _declare(node: Node, parameter: Parameter) -> Value:
    # Typed dynamically, since a wrong type then reaches the message below instead of ending
    # in rclpy's exception, which names neither the file nor the mend.
    value = node.declare_parameter(parameter.name, parameter.default,
                                   ParameterDescriptor(dynamic_typing=True)).value
    wanted = type(parameter.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        mend = (f"write '{value}' in quotes" if wanted is str and type(value) in (bool, int, float)
                else f'give it a {wanted.__name__}, such as {parameter.default!r}')
        found = 'empty' if value is None else f'{value!r} ({type(value).__name__})'
        raise ValueError(f'parameter {parameter.name} of node {node.get_name()} is {found}, '
                         f'must be {wanted.__name__}: {mend}')
    low, high = parameter.low, parameter.high
    if low is not None and high is not None and not isinstance(value, str):
        check_range(f'parameter {parameter.name}', value, low, high)
    # Only now: rclpy checks limits, too, but lets an int pass those of a float.
    node.set_descriptor(parameter.name, _descriptor(parameter))
    return value


def _descriptor(parameter: Parameter) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(description=parameter.description, read_only=True,
                                     dynamic_typing=True)
    low, high = parameter.low, parameter.high
    if low is not None and high is not None:
        if type(parameter.default) is int:
            descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
        else:
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=float(low), to_value=float(high))]
    return descriptor
