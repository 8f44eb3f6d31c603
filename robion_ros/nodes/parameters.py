# SPDX-License-Identifier: Apache-2.0
"""
A node's parameters as one table, declared by one function.

Knows no node in particular.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.node import Node

Value = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One read-only parameter: everything that can change while a node runs is a service."""

    name: str
    default: Value
    description: str


def declare(node: Node, table: Sequence[Parameter]) -> Mapping[str, Value]:
    """
    Declare a table of parameters and return their values.

    Raise ValueError naming the parameter, its value and the mend when one has another type;
    an int where a float is wanted is converted.
    """
    return {parameter.name: _declare(node, parameter) for parameter in table}


def describe(table: Sequence[Parameter]) -> str:
    """Return the table as text for --help."""
    width = max(len(parameter.name) for parameter in table)
    return '\n'.join(f'  {parameter.name:{width}}  {parameter.description} '
                     f'(default: {parameter.default!r})' for parameter in table)


def _declare(node: Node, parameter: Parameter) -> Value:
    # Typed dynamically, since a wrong type then reaches the message below instead of ending
    # in rclpy's exception, which names neither the file nor the mend.
    descriptor = ParameterDescriptor(description=parameter.description, read_only=True,
                                     dynamic_typing=True)
    value = node.declare_parameter(parameter.name, parameter.default, descriptor).value
    wanted = type(parameter.default)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        mend = (f"write '{value}' in quotes" if wanted is str and type(value) in (bool, int, float)
                else f'give it a {wanted.__name__}, such as {parameter.default!r}')
        found = 'empty' if value is None else f'{value!r} ({type(value).__name__})'
        raise ValueError(f'parameter {parameter.name} of node {node.get_name()} is {found}, '
                         f'must be {wanted.__name__}: {mend}')
    return value
