# SPDX-License-Identifier: Apache-2.0
"""Pictures, prompts and units of a policy are those that it is given."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from robion_ros.core import Observation
from robion_ros.models.policy_processing import lerobot_words, PolicyProcessing
from robion_ros.models.processing import Scaling
from robion_ros.models.smolvla_config import SMALL
from robion_ros.models.tokenizer import byte_tokens, ByteTokenizer

CONFIG = replace(SMALL, cameras=2, state_size=3, action_size=2)


def observe(prompt='pick', state=(1, 2, 3)) -> Observation:
    images = tuple(np.full((4, 4, 3), value, np.uint8) for value in (10, 20))
    return Observation(images, np.array(state, np.float32), prompt, 0)


class Plain(ByteTokenizer):
    """Adds nothing before a prompt."""

    begin = None


@pytest.mark.parametrize('prompt, words', [
    ('pick', 'pick\n'), ('pick\n', 'pick\n'), (' pick_it up\nnow ', ' pick_it up\nnow \n')])
def test_instructions_are_worded_as_lerobot_does(prompt, words):
    assert ''.join(lerobot_words(prompt)) == words
    inputs = PolicyProcessing(CONFIG).preprocess(observe(prompt))
    assert inputs['tokens'][inputs['token_mask']].tolist() == byte_tokens(words)


def test_a_prompt_without_a_beginning_is_its_words_alone():
    inputs = PolicyProcessing(CONFIG, tokenizer=Plain()).preprocess(observe())
    assert inputs['tokens'][inputs['token_mask']].tolist() == byte_tokens('pick\n')[1:]


def test_inputs_have_the_shapes_of_the_sizes():
    inputs = PolicyProcessing(CONFIG).preprocess(observe())
    assert {name: tuple(tensor.shape) for name, tensor in inputs.items()} == {
        'images': (2, 64, 64, 3), 'image_mask': (2,), 'tokens': (48,), 'token_mask': (48,),
        'state': (32,)}
    assert inputs['image_mask'].all()


def test_pictures_come_in_the_network_s_order():
    seen = PolicyProcessing(CONFIG, order=(1, 0)).preprocess(observe())['images']
    assert [int(picture.max()) for picture in seen] == [20, 10]


def test_states_and_actions_are_scaled():
    made = PolicyProcessing(CONFIG, state=Scaling(0.0, 2.0), actions=Scaling(10.0, 0.1))
    assert made.preprocess(observe())['state'].tolist() == [0.5, 1, 1.5] + [0.0] * 29
    chunk = made.postprocess(torch.ones(10, 32), observe())
    assert chunk.dtype == np.float32
    np.testing.assert_allclose(chunk, np.full((10, 2), 10.1), rtol=1e-6)


def test_an_action_is_relative_to_the_state_before_it_was_scaled():
    units = Scaling(0.0, 10.0)
    made = PolicyProcessing(CONFIG, state=units, actions=units,
                            relative=np.array([1, 0], np.float32))
    chunk = made.postprocess(torch.ones(10, 32), observe())
    assert chunk.tolist() == [[11, 10]] * 10 and chunk.dtype == np.float32


def test_tokens_of_a_prompt_are_those_of_that_prompt():
    made = PolicyProcessing(CONFIG)
    first, other, again = (made.preprocess(observe(prompt))['tokens'].tolist()
                           for prompt in ('pick', 'place', 'pick'))
    assert first == again != other


@pytest.mark.parametrize('change, message', [
    ({'prompt': ' '}, 'an instruction of at least one word'),
    ({'images': ()}, 'the observation has 0 images, the model takes 2'),
    ({'state': np.zeros(2, np.float32)}, r'the state has shape \[2\], the model takes \[3\]'),
])
def test_what_the_policy_does_not_take_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PolicyProcessing(CONFIG).preprocess(replace(observe(), **change))
