# SPDX-License-Identifier: Apache-2.0
"""What runs before the first request is like a request, and of every size."""

import pytest

from robion_ros.engine.warm_up import example


def test_example_fits_the_model_and_shows_more_than_black(tiny) -> None:
    ticket = example('m', tiny)
    assert ticket.request.model == 'm'
    assert len(ticket.request.observation.images) == tiny.spec.cameras
    assert ticket.inputs['images'].float().std() > 10
    assert ticket.noise.shape == tiny.noise([0])[0].shape


def test_model_that_refuses_it_is_named(kit) -> None:
    def refuse(stage: str, numbers: tuple[int, ...]) -> None:
        raise ValueError('no such camera')
    with pytest.raises(RuntimeError, match='model m cannot preprocess: ValueError: no such cam'):
        example('m', kit.Fake(refuse))
