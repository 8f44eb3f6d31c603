# SPDX-License-Identifier: Apache-2.0
"""A demo runs in a ROS domain of its own, unless the user chose one for it."""

import socket

import pytest

from robion_ros.commands.domain import claim_domain, DOMAINS, free_domain


def test_domain_and_range_of_the_users_floor_are_not_those_of_a_demo() -> None:
    floor = {'ROS_DOMAIN_ID': '107', 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}
    environment = dict(floor)
    assert int(claim_domain(environment)) in DOMAINS
    assert environment == {'ROS_DOMAIN_ID': environment['ROS_DOMAIN_ID'],
                           'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}


@pytest.mark.parametrize(('before', 'reach'), [
    ({}, 'LOCALHOST'), ({'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}, 'SUBNET')],
    ids=['nothing set', 'range set'])
def test_domain_that_is_asked_for_is_taken(before: dict[str, str], reach: str) -> None:
    environment = {'ROS_DOMAIN_ID': '7', **before}
    assert claim_domain(environment, 0) == '0'
    assert environment == {'ROS_DOMAIN_ID': '0', 'ROS_AUTOMATIC_DISCOVERY_RANGE': reach}


def test_own_domain_stays_on_this_machine() -> None:
    environment: dict[str, str] = {}
    assert int(claim_domain(environment)) in DOMAINS
    assert environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'LOCALHOST'


def test_domain_that_is_taken_is_passed_over() -> None:
    free = free_domain(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(('127.0.0.1', 7400 + 250 * free + 10))
        assert free_domain(DOMAINS.index(free)) != free
