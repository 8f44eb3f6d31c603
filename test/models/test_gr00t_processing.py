# SPDX-License-Identifier: Apache-2.0
"""Prompts and pictures become what GR00T N1.5 was trained with, or are refused by name."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

from robion_ros.core import Observation
from robion_ros.models.gr00t_config import CONFIGS
from robion_ros.models.gr00t_pictures import cropped, squeezed
from robion_ros.models.gr00t_processing import (
    formal_words,
    Gr00tProcessing,
    isaac_words,
    lerobot_words,
    WordTokenizer,
)

SMALL = CONFIGS['gr00t_n1_5_small']


def processing(cameras: int = 2, **changes) -> Gr00tProcessing:
    config = replace(SMALL, cameras=cameras, state_size=3, action_size=2)
    return Gr00tProcessing.open(config, WordTokenizer(512), **changes)


def observe(prompt: str = 'pick', cameras: int = 2) -> Observation:
    images = tuple(np.full((40, 60, 3), 10 * index + 10, np.uint8) for index in range(cameras))
    return Observation(images, np.array([1, 2, 3], np.float32), prompt, 0)


@pytest.mark.parametrize('prompt, isaac, lerobot, formal', [
    ('pick', 'pick', "['pick']", "['pick']"),
    ("Don't\nlook ", "Don't\nlook ", '["Don\'t\\nlook "]', "['dont\\nlook ']"),
    ('Öffne 2!', 'Öffne 2!', "['Öffne 2!']", "['öffne 2']"),
    ('?!', '?!', "['?!']", "['']"),
])
def test_instructions_are_worded_as_where_the_model_comes_from(prompt, isaac, lerobot, formal):
    assert [words(prompt) for words in (isaac_words, lerobot_words, formal_words)] == [
        (isaac,), (lerobot,), (formal,)]


def test_text_stands_around_each_picture():
    one, three = processing(1), processing(3)
    assert one.config.text_before == (20,) and three.config.text_before == (20, 7, 7)
    assert three.frame[:19] == one.frame[:19]
    tokens = [made.preprocess(observe(cameras=count))['tokens'] for made, count in
              ((one, 1), (three, 3))]
    assert tokens[0][:20].tolist() == list(one.frame)
    assert [len(found) for found in tokens] == [made.config.text_tokens for made in (one, three)]


def test_tokens_of_a_prompt_are_those_of_that_prompt():
    made = processing()
    first, other, again = (made.preprocess(observe(prompt))['tokens'].tolist()
                           for prompt in ('pick', 'place', 'pick'))
    assert first == again != other


def test_pictures_come_in_the_network_s_order():
    seen = processing(order=(1, 0)).preprocess(observe())['images']
    assert [int(picture.max()) for picture in seen] == [20, 10] and seen.dtype == torch.uint8


def test_a_state_is_filled_up_with_zeros():
    assert processing().preprocess(observe())['state'].tolist() == [1, 2, 3] + [0] * 29


@pytest.mark.parametrize('prompt, message', [
    ('look at <image-1>', 'holds a word that stands for a picture'),
    ('look at <IMG_CONTEXT>', 'holds a word that stands for a picture'),
    ('word ' * 80, 'has 90 tokens with what ends it, the model reads 72: shorten it, or write'),
    (' ', 'must be|takes an instruction'),
])
def test_a_prompt_that_cannot_be_read_drops_its_request(prompt, message):
    made = processing()
    with pytest.raises(ValueError, match=message):
        made.preprocess(observe(prompt))
    made.preprocess(observe())


@pytest.mark.parametrize('scale', [squeezed, cropped])
@pytest.mark.parametrize('shape', [(480, 640), (45, 33), (56, 56), (240, 56)])
def test_pictures_are_squeezed_into_a_square(scale, shape):
    down, across = np.meshgrid(*(np.linspace(20, 230, side) for side in shape), indexing='ij')
    image = np.stack((down, across, (down + across) / 2), -1).astype(np.uint8)
    image.flags.writeable = False  # As those that come in messages.
    found = scale(image, 56).numpy()
    assert found.shape == (56, 56, 3) and found.dtype == np.uint8
    rows, columns = shape
    part = image if scale is squeezed else image[rows // 40:rows - rows // 40,
                                                 columns // 40:columns - columns // 40]
    near = cv2.resize(part, (56, 56), interpolation=cv2.INTER_LINEAR)
    assert np.abs(found.astype(int) - near).max() < 8


@pytest.mark.parametrize('scale', [squeezed, cropped])
def test_what_is_no_picture_is_refused(scale):
    with pytest.raises(ValueError, match=r'shape \[4, 4\], must be \[height, width, 3\]'):
        scale(np.zeros((4, 4), np.uint8), 56)
