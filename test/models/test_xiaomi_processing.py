# SPDX-License-Identifier: Apache-2.0
"""Prompts are worded as in training, and every token says where it stands."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import torch

from robion_ros.core import Observation
from robion_ros.models.processing import Scaling
from robion_ros.models.qwen3_vl import ABSENT
from robion_ros.models.xiaomi_config import SMALL
from robion_ros.models.xiaomi_processing import scaling, words_of, XiaomiProcessing


def processing(**changes) -> XiaomiProcessing:
    config = replace(SMALL, state_size=3, action_size=2, prompt_tokens=64)
    return XiaomiProcessing(config, **changes)


def observe(prompt='pick', state=(1, 2, 3)) -> Observation:
    images = tuple(np.full((4, 4, 3), value, np.uint8) for value in (10, 20))
    return Observation(images, np.array(state, np.float32), prompt, 0)


def test_a_prompt_is_worded_as_the_published_server_does():
    parts = words_of(('Base View', 'Left-Wrist View'), 'Pick up the red block.')
    assert '<|image_pad|>'.join(parts) == (
        '<|im_start|>user\nThe following observations are captured from multiple views.\n'
        '# Base View\n<|vision_start|><|image_pad|><|vision_end|>\n'
        '# Left-Wrist View\n<|vision_start|><|image_pad|><|vision_end|>\n'
        'Generate robot actions for the task:\nPick up the red block. /no_cot<|im_end|>\n'
        '<|im_start|>assistant\n<cot></cot><|im_end|>\n')


def test_pictures_come_in_the_network_s_order():
    seen = processing(order=(1, 0)).preprocess(observe())
    assert [int(seen[f'picture_{index}'].max()) for index in range(2)] == [20, 10]


@given(st.text(min_size=1, max_size=20), st.sampled_from([((64, 64),), ((32, 96), (64, 32))]))
def test_tokens_are_read_one_after_the_other(prompt, pictures):
    made = processing()
    made = replace(made, config=replace(made.config, pictures=pictures, prompt_tokens=128))
    layout = made.lay_out(prompt)
    real = layout.order < ABSENT
    count = made.config.picture_tokens + len(prompt.encode(errors='surrogatepass'))
    assert sorted(layout.order[real].tolist()) == list(range(count))
    assert len(layout.tokens) == 128 and len(real) == made.config.prefix_tokens
    read = layout.places[:, layout.order.argsort()[:count]]
    assert (read >= 0).all() and int(read[:, 0].max()) == 0
    # Words go on behind the place that a picture reached along its longer side.
    last = sum(max(grid) for grid in made.config.grids) + count - made.config.picture_tokens - 1
    assert int(layout.places.max()) == last


def test_a_picture_s_tokens_stand_at_their_rows_and_columns():
    made = processing()
    layout = replace(made, config=replace(made.config, pictures=((32, 96), (64, 32)))).lay_out('a')
    assert layout.places[:, :5].tolist() == [[0, 0, 0, 3, 3], [0, 0, 0, 3, 4], [0, 1, 2, 3, 3]]
    assert layout.places[:, 5].tolist() == [5, 5, 5]


@pytest.mark.parametrize('prompt, message', [
    ('x' * 65, 'makes 65 tokens, the model takes 64: shorten it'),
])
def test_what_does_not_fit_drops_one_request(prompt, message):
    with pytest.raises(ValueError, match=message):
        processing().preprocess(observe(prompt))


def test_an_instruction_holds_no_picture():
    made = processing()
    made = replace(made, config=replace(made.config, image_token=ord('#') + 2))
    with pytest.raises(ValueError, match=r'the prompt .* holds a word that'):
        made.preprocess(observe('pick #'))


def test_actions_are_scaled_step_by_step():
    offset = np.arange(20, dtype=np.float32).reshape(10, 2)
    chunk = processing(actions=Scaling(offset, np.full((10, 2), 2, np.float32))).postprocess(
        torch.ones(10, 32), observe())
    np.testing.assert_array_equal(chunk, offset + 2)
    assert chunk.dtype == np.float32


def test_pixels_are_scaled_to_mean_and_deviation():
    factors, offsets = scaling(1 / 255, (0.5, 0.4, 0.3), (0.5, 0.25, 0.2))
    found = np.multiply((0, 255, 51), factors) + offsets
    np.testing.assert_allclose(found, [-1, 2.4, -0.5])


def test_an_instruction_is_tokenized_once():
    made, seen = processing(), []
    encode = made.tokenizer.encode

    class Counting:
        begin, size = -1, 300

        def encode(self, text):
            seen.append(text)
            return encode(text)
    made = replace(made, tokenizer=Counting())
    first, again = (made.preprocess(observe())['tokens'] for _ in range(2))
    assert torch.equal(first, again) and seen.count('pick') == 1
