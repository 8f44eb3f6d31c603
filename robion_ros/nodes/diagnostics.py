# SPDX-License-Identifier: Apache-2.0
"""One entry of /diagnostics, named as all of ours are. Knows no node in particular."""

from collections.abc import Mapping

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue


def diagnostic(server: str, robot: str, message: str, level: bytes,
               values: Mapping[str, object]) -> DiagnosticStatus:
    """Describe a server (or the manager), or one robot of it where robot is not empty."""
    name = f'robion: {server}: {robot}' if robot else f'robion: {server}'
    return DiagnosticStatus(
        level=level, name=name, hardware_id=robot or server, message=message,
        values=[KeyValue(key=key, value=str(value)) for key, value in values.items()])


def manager_diagnostic(manager: str, problem: str, servers: int, robots: int, assigned: int,
                       epoch: int) -> DiagnosticStatus:
    """Describe a manager; problem is what needs an operator's eye now, '' for nothing."""
    level = DiagnosticStatus.WARN if problem or assigned < robots else DiagnosticStatus.OK
    return diagnostic(manager, '', problem or 'every robot is assigned', level,
                      {'servers': servers, 'robots': robots, 'assigned': assigned,
                       'epoch': epoch})
