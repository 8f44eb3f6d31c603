# SPDX-License-Identifier: Apache-2.0
"""
One number of robots, served one way, over all epochs: a row of a result.

Knows neither what serves nor which number is tried next.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from robion_ros.bench.arrivals import Arrival, make_robots, Robot, schedule
from robion_ros.bench.metrics import attainments, summarize
from robion_ros.bench.network import Network, travel
from robion_ros.bench.records import Record
from robion_ros.bench.serving import Serving
from robion_ros.bench.settings import Traffic

Row = Mapping[str, Any]
"""What JSON can hold: robots, passes, the figures of metrics.summarize, epochs, requests."""


def measure(serving: Serving, slos: Mapping[str, float], count: int, traffic: Traffic,
            network: Network | None = None, early: bool = False,
            on_epoch: Callable[[str], None] = lambda text: None) -> Row:
    """Serve count robots, spread over the models of slos; see measure_robots."""
    return measure_robots(serving, make_robots(slos, count), traffic, network, early, on_epoch)


def measure_robots(serving: Serving, robots: Sequence[Robot], traffic: Traffic,
                   network: Network | None = None, early: bool = False,
                   on_epoch: Callable[[str], None] = lambda text: None) -> Row:
    """
    Serve robots for every epoch; return the row.

    early ends it after the epoch in which so many requests were missed that no later epoch can
    bring the attainment of every model to the target; the row says so.
    """
    plans = [schedule(robots, traffic, epoch) for epoch in range(traffic.epochs)]
    planned = Counter(arrival.robot.model for plan in plans for arrival in plan
                      if arrival.counted)
    epochs: list[list[Record]] = []
    for epoch, plan in enumerate(plans):
        epochs.append(run_epoch(serving, plan, traffic, network, epoch))
        counted = [record for records in epochs for record in records]
        on_epoch(f'epoch {epoch + 1}/{traffic.epochs}')
        if early and is_decided(counted, planned, traffic.target):
            break
    found = summarize(counted)
    return {'robots': len(robots),
            'robots_by_model': dict(Counter(robot.model for robot in robots)),
            'passes': found['worst'] >= traffic.target and len(epochs) == traffic.epochs,
            'decided_early': len(epochs) < traffic.epochs, **found,
            'epochs': [{'epoch': epoch, **summarize(records)}
                       for epoch, records in enumerate(epochs)],
            'requests': as_columns(epochs)}


def run_epoch(serving: Serving, plan: Sequence[Arrival], traffic: Traffic,
              network: Network | None, epoch: int) -> list[Record]:
    """Serve the requests of an epoch; return the records of those that count."""
    records = serving.run(travel(plan, network, traffic.seed, epoch))
    found = Counter((record.arrival.robot.name, record.arrival.number) for record in records)
    wanted = Counter((arrival.robot.name, arrival.number) for arrival in plan)
    if found != wanted:
        raise AssertionError(f'requests without exactly one record: {wanted - found}, '
                             f'records without request: {found - wanted}')
    return sorted((record for record in records if record.arrival.counted),
                  key=lambda record: record.arrival.at)


def is_decided(records: Sequence[Record], planned: Mapping[str, int], target: float) -> bool:
    """Return whether a model misses the target even if all its requests to come are met."""
    sent = Counter(record.arrival.robot.model for record in records)
    return any((1 - met) * sent[model] > (1 - target) * planned[model] + 1e-9
               for model, met in attainments(records).items())


def as_columns(epochs: Sequence[Sequence[Record]]) -> Mapping[str, list[Any]]:
    """Return every counted request, column by column; times in ms, those at the server last."""
    def in_ms(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds * 1e3, 2)
    rows = [(epoch, record.arrival.robot.name, record.arrival.number, in_ms(record.arrival.at),
             record.ending.value, in_ms(record.latency), record.batch,
             *(in_ms(time) for time in (astuple(record.timings) if record.timings
                                        else [None] * 4)))
            for epoch, records in enumerate(epochs) for record in records]
    names = ('epoch', 'robot', 'number', 'at_ms', 'ending', 'latency_ms', 'batch', 'queue_ms',
             'vlm_ms', 'adit_ms', 'engine_ms')
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
