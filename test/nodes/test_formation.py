# SPDX-License-Identifier: Apache-2.0
"""When requests are formed: messages and moments come from tables and at random."""

from dataclasses import replace
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from robion_ros.config import CameraConfig, ModelConfig
from robion_ros.nodes.formation import Formation, Handover, WATERMARK_LIFE

from .forming import ARM, formation, LIFT, numbers, see, STATE


def test_a_request_holds_the_newest_of_every_input() -> None:
    made = formation()
    see(made, 0.1, 'wrist', 'front')
    see(made, 0.2, 'front')
    made.add_state(2 * STATE, 0.25)
    draft = made.form(0.3)
    assert draft is not None
    assert (draft.robot, draft.model, draft.number, draft.prompt) == ('r', 'arm', 1, 'pick')
    assert draft.arrived == 0.3
    assert [(frame.message, frame.received) for frame in draft.frames] == [
        ('front', 0.2), ('wrist', 0.1)], "in the order of the model's cameras"
    assert draft.state.tolist() == [2, 4]
    assert made.handover == Handover(1, 200_000_000, 'pick', 0)


def test_every_camera_has_to_be_new() -> None:
    made = formation()
    see(made, 0.0)
    assert made.form(0.0)
    see(made, 1.0, 'front')
    made.add_state(STATE, 1.0)
    assert made.form(1.0) is None
    see(made, 1.1, 'front')
    assert made.form(1.1) is None
    see(made, 1.2, 'wrist')
    assert made.form(1.2)


@pytest.mark.parametrize(('front', 'wrist', 'state', 'active', 'forms'), [
    (5.0, None, 5.0, True, False),
    (3.9, 5.0, 5.0, True, False),
    (5.0, 5.0, 3.9, True, False),
    (5.0, 5.0, 5.0, False, False),
    (4.0, 4.0, 4.0, True, True),
], ids=['lacks a camera', 'old camera', 'old state', 'standby', 'just old enough'])
def test_age(front: float, wrist: float | None, state: float, active: bool, forms: bool) -> None:
    made = formation()
    see(made, front, 'front')
    if wrist is not None:
        see(made, wrist, 'wrist')
    made.add_state(STATE, state)
    made.active = active
    assert bool(made.form(5.0)) == forms
    assert made.handover.last_request == forms


def test_no_request_before_the_first_state_and_prompt() -> None:
    made = Formation('r', 'arm', replace(ARM, prompt=''))
    made.activate(Handover(), 0.0)
    see(made, 0.0)
    assert made.form(0.0) is None
    made.add_state(STATE, 0.0)
    assert made.form(0.0) is None
    assert made.missing(0.0) == {'prompt': -inf}
    made.add_prompt('go', 5)
    draft = made.form(0.0)
    assert draft is not None
    assert draft.prompt == 'go'


def test_standby_listens_and_goes_on_where_the_other_stopped() -> None:
    made = Formation('r', 'arm', ARM)
    made.add_state(STATE, 10.0)
    see(made, 10.0, published=100)
    assert made.form(10.0) is None
    assert made.complete
    made.activate(Handover(7, 99, 'stack', 50), 10.1)
    draft = made.form(10.1)
    assert draft is not None
    assert (draft.number, draft.prompt) == (8, 'stack')


@pytest.mark.parametrize(('front', 'wrist', 'forms'), [
    (100, 100, False), (101, 100, False), (100, 101, False), (101, 101, True), (99, 300, False)])
def test_images_the_other_server_used_are_not_used_again(front: int, wrist: int,
                                                         forms: bool) -> None:
    for arrives in ('before', 'after'):
        made = Formation('r', 'arm', ARM)
        made.add_state(STATE, 10.0)
        if arrives == 'after':
            made.activate(Handover(7, 100), 10.0)
        see(made, 10.0, 'front', published=front)
        see(made, 10.0, 'wrist', published=wrist)
        if arrives == 'before':
            made.activate(Handover(7, 100), 10.0)
        assert bool(made.form(10.0)) == forms, arrives


def test_a_clock_set_back_stops_a_robot_for_a_moment_only() -> None:
    made = formation()
    made.activate(Handover(7, 10**18), 0.0)
    assert numbers(made, 0.5, WATERMARK_LIFE - 0.01) == []
    assert numbers(made, WATERMARK_LIFE, 2.0) == [8, 9]


def test_cameras_whose_clocks_differ_are_both_heard_after_a_hand_over() -> None:
    made = formation()
    made.activate(Handover(7, 100), 0.0)
    for now in (0.1, 0.6):
        made.add_state(STATE, now)
        see(made, now, 'front', published=10_000 + round(now))
        see(made, now, 'wrist', published=101 + round(now))
        assert made.form(now), now


def test_activation_can_be_repeated() -> None:
    made = formation()
    made.activate(Handover(7, 5, 'stack', 50), 0.0)
    assert numbers(made, 1.0) == [8]
    before = made.handover
    for told in (Handover(7, 5, 'stack', 50), Handover()):
        see(made, 1.4)
        made.activate(told, 1.4)
        assert made.handover == before
    made.add_state(STATE, 1.5)
    draft = made.form(1.5)
    assert draft is not None
    assert draft.number == 9


PROMPTS = st.lists(st.tuples(st.sampled_from(['told', 'heard']), st.integers(1, 9)), max_size=12)


@given(PROMPTS, st.sampled_from(['', 'pick']))
def test_the_prompt_published_last_is_in_force(events: list[tuple[str, int]],
                                               default: str) -> None:
    made = Formation('r', 'arm', replace(ARM, prompt=default))
    newest = 0
    for how, stamp in events:
        text = f'prompt of {stamp}'
        if how == 'heard':
            assert made.add_prompt(text, stamp) == (stamp > newest)
        else:
            made.activate(Handover(0, 0, text, stamp), 0.0)
        newest = max(newest, stamp)
        assert made.handover.prompt_stamp == newest
        assert made.handover.prompt == f'prompt of {newest}'
    if not events:
        assert made.handover.prompt == default


def test_a_live_prompt_is_the_latest_whatever_its_clock_says() -> None:
    made = Formation('r', 'arm', ARM)
    assert made.add_prompt('by a clock ahead', 9) and not made.add_prompt('old and latched', 5)
    assert made.add_prompt('new, by a clock behind', 5, live=True)
    assert not made.add_prompt('new, by a clock behind', 5)  # its latched copy


SILENT = replace(ARM, prompt='')


@pytest.mark.parametrize(('config', 'known', 'prompt'), [
    (LIFT, Handover(3, 0, 'pick', 0), 'lift'),
    (SILENT, Handover(3, 0, 'pick', 0), 'pick'),
    (LIFT, Handover(3, 0, 'stack', 5), 'stack'),
    (LIFT, Handover(3), 'lift'),
], ids=['defaults', 'only the other has one', 'published', 'none'])
def test_another_model_keeps_what_was_published_not_the_others_default(
        config: ModelConfig, known: Handover, prompt: str) -> None:
    old = formation()
    old.handover = known
    adopted = Formation('r', 'other', config, previous=old)
    moved = Formation('r', 'other', config)
    moved.activate(known, 0.0)
    returned = Formation('r', 'other', config, known)
    for made in (adopted, moved, returned):
        assert (made.handover.prompt, made.handover.last_request) == (prompt, 3)


@pytest.mark.parametrize(('config', 'forms', 'complete'), [
    (LIFT, True, True),
    (replace(ARM, cameras={'front': CameraConfig()}), False, False),
    (replace(ARM, joints=('a',)), False, True),
    (replace(ARM, cameras=dict(reversed(ARM.cameras.items()))), True, True),
], ids=['same robot', 'other cameras', 'other joints', 'cameras in another order'])
def test_another_model_takes_over_the_inputs_that_fit(config: ModelConfig, forms: bool,
                                                      complete: bool) -> None:
    old = formation()
    see(old, 0.1)
    made = Formation('r', 'other', config, previous=old)
    assert made.active
    assert made.complete == complete
    draft = made.form(0.2)
    assert (draft is not None) == forms
    if draft:
        assert draft.model == 'other'
        assert [frame.message for frame in draft.frames] == list(config.cameras)


@given(st.lists(st.sampled_from(['see', 'take over', 'switch', 'hold']), max_size=40),
       st.randoms(use_true_random=False))
def test_numbers_and_watermarks_only_grow(events: list[str], random: Any) -> None:
    made, now, last = formation(), 0.0, Handover()
    for event in events:
        now += random.choice([0.01, 0.3, 0.6])
        match event:
            case 'see':
                made.add_state(STATE, now)
                see(made, now)
                draft = made.form(now)
                assert draft is None or (draft.number > last.last_request and made.active)
            case 'take over':
                made.activate(Handover(random.randrange(50), random.randrange(10**10)), now)
            case 'switch':
                made = Formation('r', 'arm', random.choice([ARM, LIFT]), previous=made)
            case 'hold':
                made.active = False
        assert made.handover.last_request >= last.last_request
        assert made.handover.watermark >= last.watermark
        last = made.handover


def test_missing_names_what_was_not_heard_lately() -> None:
    made = Formation('r', 'arm', ARM)
    assert made.missing(0.0) == {'front': -inf, 'wrist': -inf, 'joint_states': -inf}
    see(made, 1.0, 'wrist')
    made.add_state(STATE, 2.0)
    assert made.missing(1.0) == {'front': -inf}
    assert made.missing(1.5) == {'front': -inf, 'wrist': 1.0}
