# SPDX-License-Identifier: Apache-2.0
"""Which queue each policy picks, on queues made by hand."""

from itertools import permutations
from typing import get_args

import pytest

from robion_ros import config
from robion_ros.engine.policies import (
    earliest_slo_first,
    largest_queue_first,
    POLICIES,
    Policy,
    round_robin,
    Waiting,
)


def test_every_configurable_policy_exists() -> None:
    assert set(POLICIES) == set(get_args(config.Policy))


# model, length, deadline of its head, last served
URGENT, LONG, NEGLECTED = (Waiting('urgent', 1, 0.5, 8), Waiting('long', 9, 2.0, 7),
                           Waiting('neglected', 3, 3.0, -1))


@pytest.mark.parametrize(('policy', 'expected'), [
    (earliest_slo_first, URGENT), (largest_queue_first, LONG), (round_robin, NEGLECTED),
], ids=lambda value: getattr(value, '__name__', ''))
def test_each_policy_looks_at_its_own(policy: Policy, expected: Waiting) -> None:
    for queues in permutations((URGENT, LONG, NEGLECTED)):
        assert policy(queues) is expected


@pytest.mark.parametrize(('policy', 'queues', 'expected'), [
    (earliest_slo_first, [('a', 5, 1.0, 0), ('b', 1, -2.0, 1)], 'b'),
    (earliest_slo_first, [('a', 1, 1.0, 3), ('b', 9, 1.0, -1)], 'a'),
    (largest_queue_first, [('a', 2, 5.0, 0), ('b', 2, 4.0, 1)], 'b'),
    (largest_queue_first, [('a', 3, 5.0, 0), ('b', 2, 4.0, -1)], 'a'),
    (round_robin, [('a', 1, 0.1, -1), ('b', 9, 0.0, -1)], 'a'),
    (round_robin, [('a', 9, 0.0, 4), ('b', 1, 9.0, 3)], 'b'),
    (round_robin, [('a', 1, 9.0, 4)], 'a'),
], ids=['past_deadline_is_earliest', 'equal_deadlines_in_order', 'equal_lengths_by_deadline',
        'length_before_deadline', 'never_served_in_order', 'longest_ago', 'only_one'])
def test_table(policy: Policy, queues: list[tuple[str, int, float, int]], expected: str) -> None:
    assert policy([Waiting(*queue) for queue in queues]).model == expected
