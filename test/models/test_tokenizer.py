# SPDX-License-Identifier: Apache-2.0
"""Any text becomes tokens, and different texts different ones."""

from hypothesis import given
from hypothesis import strategies as st

from robion_ros.models.tokenizer import BEGIN, byte_tokens, PADDING, VOCABULARY

TEXT = st.text(st.characters())  # single surrogates, too


def test_a_token_is_a_byte():
    assert byte_tokens('Aé') == [BEGIN, 0x41 + 2, 0xc3 + 2, 0xa9 + 2]


@given(TEXT)
def test_tokens_are_in_the_vocabulary_and_none_is_padding(text):
    tokens = byte_tokens(text)
    assert tokens[0] == BEGIN
    assert all(PADDING < token < VOCABULARY for token in tokens)
    assert tokens[1:].count(BEGIN) == 0


@given(TEXT, TEXT)
def test_different_texts_have_different_tokens(one, other):
    assert (byte_tokens(one) == byte_tokens(other)) == (one == other)
