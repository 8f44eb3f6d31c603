# SPDX-License-Identifier: Apache-2.0
"""What simulated robots see."""

import numpy as np

from robion_ros.bench.observations import Observations


def test_every_picture_is_fresh_noise() -> None:
    source = Observations(2, 3, 48, 64, 5)
    seen = [source.make() for _ in range(10)]
    pictures = {picture.tobytes() for observation in seen for picture in observation.images}
    assert len(pictures) == 20
    for observation in seen:
        assert [picture.shape for picture in observation.images] == [(48, 64, 3)] * 2
        assert observation.images[0].dtype == np.uint8
        assert observation.images[0].std() > 60
        assert observation.state.shape == (3,) and observation.state.dtype == np.float32


def test_a_seed_gives_the_same_pictures() -> None:
    first, again, other = (Observations(1, 3, 8, 8, seed).make() for seed in (1, 1, 2))
    assert (first.images[0] == again.images[0]).all()
    assert (first.images[0] != other.images[0]).any()
