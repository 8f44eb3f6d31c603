# SPDX-License-Identifier: Apache-2.0
"""
A ROS domain for one demo alone, so that it does not mix with robots that run already.

Knows which ports the domains of DDS take, nothing of what happens on them.
"""

from collections.abc import MutableMapping
import os
import socket

DOMAINS = range(1, 101)
"""0 is everybody's; the ports of those above 101 are handed out to other programs by Linux."""


def claim_domain(environment: MutableMapping[str, str], domain: int | None = None) -> str:
    """
    Put a domain and the wish to stay on this machine into environment; return the domain.

    None: one that is free here, whatever environment says: that may be where real robots are.
    Only in a domain of the user's choice may the range of discovery be the user's, too.
    """
    if domain is None:
        domain = free_domain(os.getpid())
        environment['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    environment.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    environment['ROS_DOMAIN_ID'] = str(domain)
    return environment['ROS_DOMAIN_ID']


def free_domain(start: int) -> int:
    """Return a domain where nobody on this machine is, looking from start on."""
    candidates = [DOMAINS[(start + step) % len(DOMAINS)] for step in range(len(DOMAINS))]
    return next((domain for domain in candidates if is_free(domain)), candidates[0])


def is_free(domain: int) -> bool:
    """Return whether nobody has the port that the first participant of a domain takes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(('', 7400 + 250 * domain + 10))
        except OSError:
            return False
    return True
