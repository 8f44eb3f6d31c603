# SPDX-License-Identifier: Apache-2.0
"""A ticket holds all a lockstep needs; tickets stack in their order."""

import pytest
import torch

from robion_ros.engine.batch import batch_sizes, make_ticket, stack


@pytest.mark.parametrize(('max_batch', 'sizes'), [
    (1, (1,)), (2, (2, 1)), (8, (8, 4, 2, 1))])
def test_sizes_are_the_powers_of_two_largest_first(max_batch: int, sizes) -> None:
    assert batch_sizes(max_batch) == sizes


def test_ticket_holds_the_preprocessed_request(kit) -> None:
    request = kit.request(9, prompt='take it')
    ticket = make_ticket(kit.Fake(), request, 12.5)
    assert ticket.request is request
    assert ticket.submitted == 12.5
    assert {name: value.tolist() for name, value in ticket.inputs.items()} == {
        'image': 9.0, 'prompt': 7.0, 'state': [9.0, 0.25]}


@pytest.mark.parametrize(('other', 'same'), [
    ({}, True), ({'model': 'n'}, True), ({'deadline': 3.0}, True), ({'prompt': 'stop'}, True),
    ({'robot': 'b'}, False),
], ids=['again', 'model', 'deadline', 'prompt', 'robot'])
def test_noise_depends_on_robot_and_number_only(kit, other: dict[str, object],
                                                same: bool) -> None:
    model = kit.Fake()
    first, second = (make_ticket(model, kit.request(5, **more), 0.0).noise for more in ({}, other))
    assert torch.equal(first, second) is same
    assert not torch.equal(first, make_ticket(model, kit.request(6, **other), 0.0).noise)


def test_noise_has_no_batch_axis(kit) -> None:
    assert make_ticket(kit.Fake(), kit.request(5), 0.0).noise.shape == (3, 4)


def test_refused_observation_is_not_swallowed(kit) -> None:
    def refuse(stage: str, numbers: tuple[int, ...]) -> None:
        raise ValueError('the state has 2 values, 7 are needed')
    with pytest.raises(ValueError, match='7 are needed'):
        make_ticket(kit.Fake(refuse), kit.request(5), 0.0)


@pytest.mark.parametrize('numbers', [(3,), (3, 1), (4, 2, 9, 7)], ids=len)
def test_stack_keeps_the_order(kit, numbers: tuple[int, ...]) -> None:
    stacked = stack(kit.batch_of(kit.Fake(), *numbers).tickets)
    assert stacked['state'].tolist() == [[number, 0.25] for number in numbers]
    assert stacked['image'].tolist() == list(numbers)
