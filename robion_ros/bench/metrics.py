# SPDX-License-Identifier: Apache-2.0
"""
What records add up to: attainment, endings, percentiles.

Pure functions. A request counts as met only if its chunk reached the robot within the deadline;
everything else is a miss, whatever its reason. Knows neither epochs nor modes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from robion_ros.bench.records import Ending, Record

PERCENTS = (50, 90, 95, 99)


def attainment(records: Sequence[Record]) -> float:
    """Return the part of the requests that were met; of none, 1."""
    return sum(record.met for record in records) / len(records) if records else 1.0


def attainments(records: Iterable[Record]) -> Mapping[str, float]:
    """Return the attainment of each model's requests."""
    by_model: dict[str, list[Record]] = {}
    for record in records:
        by_model.setdefault(record.arrival.robot.model, []).append(record)
    return {model: attainment(found) for model, found in by_model.items()}


def percentiles(values: Iterable[float]) -> dict[str, float | None]:
    """Return percentiles by name, such as p50; None where there are no values."""
    known = list(values)
    found = np.percentile(known, PERCENTS).tolist() if known else [None] * len(PERCENTS)
    return {f'p{percent}': value for percent, value in zip(PERCENTS, found, strict=True)}


def summarize(records: Sequence[Record]) -> dict[str, Any]:
    """
    Return the figures of records, as what JSON can hold; times in ms.

    sent = the sum of all endings; met + late = answered. Latencies are those of requests that
    were answered: read them beside the attainment.
    """
    endings = Counter(record.ending for record in records)
    by_model = attainments(records)
    answered = [record for record in records if record.latency is not None]
    met = sum(record.met for record in records)
    ran = [record for record in answered if record.timings is not None]
    return {
        'sent': len(records),
        'met': met,
        'late': len(answered) - met,
        **{ending.value: endings[ending] for ending in Ending},
        'attainment': attainment(records),
        'by_model': by_model,
        'worst': min(by_model.values(), default=1.0),
        'latency_ms': in_ms(percentiles(record.latency or 0.0 for record in answered)),
        'queue_ms': in_ms(percentiles(record.timings.queue for record in ran if record.timings)),
        'vlm_ms': in_ms(percentiles(record.timings.vlm for record in ran if record.timings)),
        'adit_ms': in_ms(percentiles(record.timings.adit for record in ran if record.timings)),
        'lag_ms': in_ms(percentiles(record.lag for record in records)),
        'batch': float(np.mean([record.batch for record in ran])) if ran else None,
    }


def in_ms(seconds: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return times in ms, to the microsecond."""
    return {name: None if value is None else round(value * 1e3, 3)
            for name, value in seconds.items()}
