# SPDX-License-Identifier: Apache-2.0
"""
The folder that openpi's conversion to PyTorch writes: config.json and assets/.../norm_stats.json.

openpi keeps most of what it knows of a policy in its own code; what this needs of that may be
added to config.json under the names it has there. Knows no architecture.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robion_ros.models.folder import CheckpointError, CONFIG, Fields, parse_json, read_json, unfold
from robion_ros.models.processing import IDENTITY, Scaling, Span, Units

STATISTICS = 'norm_stats.json'
CAMERAS = 'base_0_rgb', 'left_wrist_0_rgb', 'right_wrist_0_rgb'
"""Every policy has these, in this order."""
LEAST = 1e-6
MEND = ": write there the {} of the training's configuration"


@dataclass(frozen=True)
class Assets:
    """What the folder holds beside the weights."""

    folder: Path
    fields: Fields
    """Of config.json."""
    statistics: Mapping[str, Mapping[str, np.ndarray]]
    """Of state and actions: mean, std and, maybe, q01 and q99, float64; empty: there are none."""

    def units(self, key: str, quantiles: bool) -> Units:
        """Return how 'state' or 'actions' are scaled."""
        if not self.statistics:
            return IDENTITY
        try:
            found = self.statistics[key]
            first, second = (found[name] for name in
                             (('q01', 'q99') if quantiles else ('mean', 'std')))
        except KeyError as error:
            raise CheckpointError(f'{self.folder}: {STATISTICS} has no {error} of {key}') from None
        if quantiles:
            return Span(first, second - first + LEAST)
        return Scaling(first, second + LEAST)

    def size(self, key: str, most: int) -> int:
        """Return how many values 'state' or 'actions' have at most."""
        found = self.statistics.get(key)
        return min(len(found['mean']), most) if found else most

    def least(self, key: str) -> int:
        """Return how many they have at least: zeros at the end fill some statistics up."""
        found = self.statistics.get(key)
        if not found:
            return 1
        moving, = np.nonzero((found['mean'] != 0) | (found['std'] != 0))
        return int(moving[-1]) + 1 if len(moving) else 1


def read_assets(folder: Path) -> Assets:
    """Read what the folder holds beside the weights."""
    fields = read_json(folder) if (folder / CONFIG).is_file() else {}
    found = sorted((folder / 'assets').rglob(STATISTICS))
    chosen = fields.get('asset_id')
    if chosen is not None:
        found = [path for path in found if path.parent == folder / 'assets' / str(chosen)]
        if not found:
            raise CheckpointError(f'{folder / CONFIG}: asset_id is {chosen!r}, and there is no '
                                  f'assets/{chosen}/{STATISTICS}')
    if len(found) > 1:
        names = ', '.join(str(path.parent.relative_to(folder / 'assets')) for path in found)
        raise CheckpointError(f'checkpoint {folder} has statistics of several robots, {names}: '
                              f'write one of these as asset_id into {CONFIG}')
    return Assets(folder, Fields(folder / CONFIG, fields, MEND),
                  read_statistics(found[0]) if found else {})


def read_statistics(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Read a norm_stats.json."""
    whole = parse_json(path)
    try:
        named = unfold(whole, 'norm_stats', dict)
        found = {key: {name: np.asarray(values, np.float64) for name, values in entry.items()
                       if values is not None} for key, entry in named.items()}
        for key in ('state', 'actions'):
            sizes = {len(unfold(found.get(key), name, np.ndarray)) for name in ('mean', 'std')}
            sizes |= {values.shape[0] for values in found[key].values()}
            finite = all(np.isfinite(values).all() and values.ndim == 1
                         for values in found[key].values())
            if len(sizes) != 1 or not finite:
                raise ValueError(f'{key} must have lists of as many finite numbers')
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(f'{path}: {error}') from error
    return found
