# SPDX-License-Identifier: Apache-2.0
"""Formations for tests, and observations for them."""

from dataclasses import replace
from typing import Any

import numpy as np

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.nodes.formation import Formation, Frame, Handover

ARM = ModelConfig('tiny', {'front': CameraConfig(), 'wrist': CameraConfig('compressed')},
                  ('a', 'b'), 2.0, 0.15, 4, prompt='pick', max_age=1.0)
LIFT = replace(ARM, prompt='lift')
PERIOD = 0.5
STATE = np.array([1, 2], np.float32)


def formation(config: ModelConfig = ARM, **start: Any) -> Formation:
    """Return a formation that has a state and may form requests."""
    made = Formation('r', 'arm', config, **start)
    made.add_state(STATE, 0.0)
    made.activate(Handover(), 0.0)
    return made


def see(made: Formation, now: float, *cameras: str, published: int | None = None) -> None:
    for camera in cameras or ('front', 'wrist'):
        made.add_frame(camera, Frame(camera, round(1e9 * now) if published is None else published,
                                     now))


def numbers(made: Formation, *moments: float) -> list[int]:
    """Return the numbers of the requests formed when whole observations come."""
    drafts = []
    for now in moments:
        made.add_state(STATE, now)
        see(made, now)
        drafts.append(made.form(now))
    return [draft.number for draft in drafts if draft]
