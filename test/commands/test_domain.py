# SPDX-License-Identifier: Apache-2.0
"""A demo runs in a ROS domain of its own, unless the user chose one."""

import socket

from robion_ros.commands.domain import claim_domain, DOMAINS, free_domain


def test_domain_of_the_user_stays() -> None:
    environment = {'ROS_DOMAIN_ID': '7', 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}
    assert claim_domain(environment) == '7'
    assert environment == {'ROS_DOMAIN_ID': '7', 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}


def test_own_domain_stays_on_this_machine() -> None:
    environment: dict[str, str] = {}
    assert int(claim_domain(environment)) in DOMAINS
    assert environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'LOCALHOST'


def test_domain_that_is_taken_is_passed_over() -> None:
    free = free_domain(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(('127.0.0.1', 7400 + 250 * free + 10))
        assert free_domain(DOMAINS.index(free)) != free
