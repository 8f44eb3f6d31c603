# SPDX-License-Identifier: Apache-2.0
"""
What the servers of a factory file take of the memory of their devices, as a table.

As if all of them were on this machine. Loads no weights, and knows nothing of who is served.
"""

from robion_ros.commands.table import format_table
from robion_ros.config import FactoryConfig
from robion_ros.engine.device import open_device
from robion_ros.engine.memory import (
    find_excess,
    make_share,
    memory_file,
    outline_models,
    Outlines,
    Share,
    show,
)
from robion_ros.processes import by_device

HEADER = 'device', 'server', 'model', 'memory'


def format_memory(factory: FactoryConfig) -> list[str]:
    """Return the table, and below what does not fit and what cannot be told here."""
    rows: list[tuple[object, ...]] = []
    outlines: Outlines = {}
    notes: list[str] = []
    for device, servers in by_device(factory).items():
        try:
            shares, note = weigh(factory, device, servers, outlines)
        except (ImportError, ValueError) as error:
            notes.append(f'memory of {device}: cannot be told: {error}')
            continue
        for share in shares:
            rows += [(device, *row) for row in list_share(share)]
        notes.append(note)
    return [*(format_table(HEADER, rows) if rows else []), *notes]


def weigh(factory: FactoryConfig, device: str, servers: list[str],
          outlines: Outlines) -> tuple[list[Share], str]:
    """Return what servers take of a device, and a line on it; raise ValueError without it."""
    opened = open_device(device)
    known, memory = memory_file(opened).read(), opened.memory()
    shares = [make_share(factory, name, outline_models(factory, name, outlines), known)
              for name in servers]
    if memory is None:
        return shares, f'memory of {device}: it does not tell how much there is'
    placed = sum(share.total for share in shares)
    return shares, find_excess(device, shares, memory) or (
        f'memory of {device}: {show(placed)} of {show(memory.total)} are taken, if all its '
        f'servers are on this machine; {show(memory.free)} are free now')


def list_share(share: Share) -> list[tuple[object, ...]]:
    """Return the rows of a server."""
    how = 'measured' if share.measured else 'estimated'
    return [*((share.server, model, show(size)) for model, size in share.weights.items()),
            (share.server, f'graphs and buffers, {how}', show(share.beside))]
