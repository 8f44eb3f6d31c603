# SPDX-License-Identifier: Apache-2.0
"""Text in columns."""

from robion_ros.commands.table import format_table


def test_words_stand_left_and_numbers_right() -> None:
    assert format_table(('robot', 'requests', 'p50 ms'),
                        [('robot_1', 5, '31.5'), ('line_1/arm_2', 120, '-')]) == [
        'robot         requests  p50 ms',
        'robot_1              5    31.5',
        'line_1/arm_2       120       -']


def test_table_without_rows_is_its_header() -> None:
    assert format_table(('robot', 'requests'), []) == ['robot  requests']
