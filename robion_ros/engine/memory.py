# SPDX-License-Identifier: Apache-2.0
"""
Whether what is placed on a device fits into its memory, said before anything is loaded.

Sizes of weights are known; what graphs and buffers take beside them is what was measured when the
same models were loaded before, and estimated until then. Knows neither how models are loaded nor
where other programs are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from robion_ros.config import check_range, FactoryConfig
from robion_ros.engine.device import Device, Memory
from robion_ros.engine.machine_file import cache_folder, MachineFile
from robion_ros.models.registry import Outline, outline

CONTEXT = 500_000_000
"""What a process with a device takes before any model, bytes: an estimate."""
PART = 0.1
"""Memory of graphs and buffers, in parts of the weights for each request of the largest batch: an
estimate, rather low, so that what would fit is not refused."""


Outlines = dict[tuple[str, str], Outline]
"""Of models on kinds of devices, cpu or cuda."""


class Placement(NamedTuple):
    """What the memory of graphs and buffers depends on."""

    sizes: tuple[str, ...]
    """Of the models, sorted, as registry.Outline has them."""
    max_batch: int
    engine: str


@dataclass(frozen=True)
class Share:
    """What a server takes of a device, bytes."""

    server: str
    weights: Mapping[str, int]
    """By model."""
    beside: int
    """Graphs, buffers, libraries."""
    measured: bool
    """Whether that is known from earlier."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.weights.values()) + self.beside


class MemoryFile(MachineFile):
    """What graphs and buffers took on one kind of machine, in a file of their own."""

    def read(self) -> dict[Placement, int]:
        """Return bytes beside the weights; a file that cannot be read holds none."""
        return dict(self.parse(_parse))

    def add(self, placement: Placement, beside: int) -> None:
        """Write what a placement took beside what stands in the file."""
        self.rewrite(lambda: [{**one._asdict(), 'bytes': taken} for one, taken in
                              (self.read() | {placement: beside}).items()])


def memory_file(device: Device) -> MemoryFile:
    """Return the file of a device's kind."""
    return MemoryFile(cache_folder('memory'), device.machine)


def make_placement(outlines: Iterable[Outline], max_batch: int, engine: str) -> Placement:
    """Describe models that share an engine."""
    return Placement(tuple(sorted(one.sizes for one in outlines)), max_batch, engine)


def make_share(factory: FactoryConfig, server: str, outlines: Mapping[str, Outline],
               known: Mapping[Placement, int]) -> Share:
    """Say what a server will take of its device; outlines are those of its models."""
    config = factory.servers[server]
    weights = {model: one.weights for model, one in outlines.items()}
    beside = known.get(make_placement(outlines.values(), config.max_batch, config.engine))
    estimate = int(PART * config.max_batch * max(weights.values(), default=0))
    return Share(server, weights, CONTEXT + (estimate if beside is None else beside),
                 beside is not None)


def outline_models(factory: FactoryConfig, server: str, known: Outlines) -> dict[str, Outline]:
    """
    Say how large the models of a server are; raise ValueError where one cannot be loaded.

    known are those of other servers of the file; it grows.
    """
    config = factory.servers[server]
    kind = config.device.partition(':')[0]
    for model in config.models:
        try:
            if (model, kind) not in known:
                known[model, kind] = outline(factory.models[model], config.device)
        except ValueError as error:
            raise ValueError(f'models.{model}: {error}') from error
    return {model: known[model, kind] for model in config.models}


def find_excess(device: str, shares: Sequence[Share], memory: Memory, own: str = '') -> str:
    """
    Return what does not fit on a device, by how much, and the mend; '' if all does.

    What is free is asked for the share of one server, own, as others may be loaded already.
    """
    placed = sum(share.total for share in shares)
    # Who asks a device has a context on it already.
    needed = sum(share.total - CONTEXT for share in shares if share.server == own)
    if placed > memory.total:
        problem = f'{show(placed - memory.total)} more than there are'
    elif needed > memory.free:
        problem = (f'but of its {show(memory.total)} only {show(memory.free)} are free, '
                   f'{show(needed - memory.free)} less than {own} takes; end what uses it')
    else:
        return ''
    return (f'{device} has {show(memory.total)}; placed on it are {show(placed)}, {problem}: '
            f'{"; ".join(map(describe, shares))}. Place fewer models on it, lower max_batch, or '
            'give a server another device')


def describe(share: Share) -> str:
    """Say what a share is made of."""
    models = ', '.join(f'{model} {show(size)}' for model, size in share.weights.items())
    return (f'{share.server}: weights of {models}; graphs and buffers '
            f'{show(share.beside)} ({"measured" if share.measured else "estimated"})')


def show(size: int) -> str:
    """Return a number of bytes for people."""
    return f'{size / 1e9:.2f} GB' if size >= 10**8 else f'{size / 1e6:.1f} MB'


def _parse(row: Mapping[str, Any]) -> tuple[Placement, int]:
    taken = int(row['bytes'])
    check_range('bytes', taken, 0, 2**50)
    return Placement(tuple(map(str, row['sizes'])), int(row['max_batch']),
                     str(row['engine'])), taken
