# SPDX-License-Identifier: Apache-2.0
"""Which camera of a robot is which of a policy."""

from pathlib import Path

import pytest

from robion_ros.config import CameraConfig, FieldError
from robion_ros.models.cameras import place_cameras

POLICY = 'base', 'left', 'right'


def place(*names, renamed=None, **inputs):
    cameras = {name: CameraConfig(input=inputs.get(name, '')) for name in names}
    return place_cameras(cameras, POLICY, renamed or {}, Path('checkpoint'))


@pytest.mark.parametrize('found, places', [
    (place(*POLICY), (0, 1, 2)),
    (place('right', 'base', 'left'), (1, 2, 0)),
    (place('right', 'base'), (1, 0)),
    (place('one', 'two', 'three'), (0, 1, 2)),
    (place('one', 'base', one='left'), (1, 0)),
    (place('top', 'left', renamed={'top': 'base'}), (0, 1)),
    (place('left', 'base', left='right', base='left'), (1, 0)),
], ids=['same', 'other order', 'one missing', 'by order', 'by input', 'renamed', 'inputs win'])
def test_cameras_are_told_by_name(found, places):
    assert found == places


@pytest.mark.parametrize('call, message', [
    (lambda: place('base', 'hand'), "cameras.hand: checkpoint .* no camera 'hand', it has base, "
     'left, right: write which one it is, hand: {input: base}'),
    (lambda: place('one', 'two'), "cameras.one: .* no camera 'one'"),
    (lambda: place('one', 'two', 'three', one='bass'), "no camera 'bass'"),
    (lambda: place('base', 'x', x='base'), "cameras: two of them are 'base'"),
], ids=['some known', 'too few to go by order', 'input unknown', 'two of one'])
def test_what_cannot_be_told_is_said(call, message):
    with pytest.raises(FieldError, match=message):
        call()
