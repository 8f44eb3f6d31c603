# SPDX-License-Identifier: Apache-2.0
"""
The evaluations: capacity and sweep of the modes, and models that share a device.

Each takes any opener of a way of serving, so that what serves can be an engine here or a factory
elsewhere. Knows neither engines nor how results are shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robion_ros import words
from robion_ros.bench.capacity import MOST, search, spread
from robion_ros.bench.network import Network
from robion_ros.bench.results import Results
from robion_ros.bench.serving import Open, Serving
from robion_ros.bench.settings import Traffic
from robion_ros.bench.trial import measure, Row


@dataclass(frozen=True, eq=False)
class Way:
    """One way of serving, for robots of some deadlines."""

    labels: Mapping[str, str]
    """mode, policy and, where models share a device, deadlines: its name in rows."""
    open: Open
    slos: Mapping[str, float]
    """By model; robots are spread over the models."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What all ways of serving have in common."""

    traffic: Traffic
    network: Network | None
    results: Results
    say: Callable[[str], None]
    """Takes a line on what was measured."""
    show: Callable[[str], None]
    """Takes what is being measured; the next text of either takes its place."""
    first: int = 4
    """The search for a capacity begins with so many robots."""
    resolution: int = 1
    most: int = MOST
    """No larger number is tried."""

    def find_capacity(self, way: Way) -> int:
        """Find the largest number of robots that a way of serving sustains."""
        rows: dict[int, Row] = {}
        with way.open() as serving:
            def passes(count: int) -> bool:
                rows[count] = self.measure(way, serving, count, early=True)
                return bool(rows[count]['passes'])
            found = search(passes, self.first, self.resolution, self.most)
        row = {key: value for key, value in rows[found].items()
               if key not in ('epochs', 'requests')} if found else None
        limited = found == self.most  # More were not tried.
        self.results.add_result({**way.labels, 'capacity': found, 'limited': limited,
                                 'row': row})
        self.say(f'{name(way)}: {"at least " if limited else ""}{words.count(found, "robot")}')
        return found

    def sweep(self, ways: Sequence[Way], counts: Sequence[int] = ()) -> None:
        """Measure every way with every count; by default with counts around the first's limit."""
        if not counts:
            counts = [count for count in spread(self.find_capacity(ways[0]))
                      if count <= self.most]
            self.results.found['results'].clear()
        for way in ways:
            known = {row['robots'] for row in self.results.found['rows']
                     if labels(row, way) == way.labels and not row['decided_early']}
            with way.open() as serving:
                for count in counts:
                    if count not in known:
                        self.measure(way, serving, count, early=False)
        self.results.found['rows'][:] = [row for row in self.results.found['rows']
                                         if not row['decided_early']]
        self.results.write()

    def measure(self, way: Way, serving: Serving, count: int, early: bool) -> Row:
        """Measure one count; keep and show the row."""
        title = f'{name(way)}, {words.count(count, "robot")}'
        row = {**way.labels, 'slo_ms': {model: slo * 1e3 for model, slo in way.slos.items()},
               **measure(serving, way.slos, count, self.traffic, self.network, early,
                         lambda text: self.show(f'{title}: {text}'))}
        self.results.add_row(row)
        latency = {key: '-' if value is None else f'{value:.1f} ms'
                   for key, value in row['latency_ms'].items()}
        self.say(f'{title}: {row["worst"]:.2%} in time, p50 {latency["p50"]}, '
                 f'p99 {latency["p99"]}'
                 + (f' (decided after {len(row["epochs"])} epochs)' if row['decided_early']
                    else ''))
        return row


def labels(row: Row, way: Way) -> dict[str, Any]:
    """Return the labels of a row that a way has."""
    return {key: row[key] for key in way.labels}


def name(way: Way) -> str:
    """Return a way's labels as text."""
    return ', '.join(way.labels.values())


def spread_deadlines(slos: Mapping[str, float], different: bool) -> Mapping[str, float]:
    """
    Return the deadlines of models that share a device, all the same or all different.

    Same: the longest. Different: their own if these differ, else from it to twice as long.
    """
    longest = max(slos.values())
    if not different:
        return dict.fromkeys(slos, longest)
    if len(set(slos.values())) > 1 or len(slos) == 1:
        return slos
    return {model: longest * (1 + index / (len(slos) - 1)) for index, model in enumerate(slos)}
